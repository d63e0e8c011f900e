// Properties of generate() and of pipelines, by name: generate(prompt, max_new_tokens(5)).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "openvino/core/any.hpp"
#include "openvino/runtime/properties.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/structured_output.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Any number of properties; for functions that take them one by one.
template <class Result, class... Properties>
using IfProperties = std::enable_if_t<ov::util::StringAny<Properties...>::value, Result>;

/// Sets what the properties name, as GenerationConfig::update_from_json() does: a number may have
/// any type that holds it, and lists may stand for sets. "generation_config", if it is there, is
/// what the others are set in. Throws InvalidArgument for an unknown name, or a value that is not
/// of the parameter's type; the config is then as it was.
PAGEWHEEL_API void set_properties(GenerationConfig& config, const ov::AnyMap& properties);

/// A member of GenerationConfig as a property of generate().
template <class T>
struct GenerationProperty : ov::Property<T> {
    using ov::Property<T>::Property;

    std::pair<std::string, ov::Any> operator()(const T& value) const {
        return {this->name(), ov::Any(value)};
    }
    /// Numbers keep their type until it is known whether the parameter holds them.
    template <class Number,
              class = std::enable_if_t<std::is_arithmetic_v<Number> && std::is_arithmetic_v<T>>>
    std::pair<std::string, ov::Any> operator()(const Number& value) const {
        return {this->name(), ov::Any(value)};
    }
};

template <class T>
struct PropertyValue {
    using Held = T;
};
template <class T>
struct PropertyValue<std::optional<T>> {
    using Held = T;
};

/// A smaller model, or a head of EAGLE-3, which drafts for another model.
struct DraftModel {
    std::filesystem::path path;  ///< as a pipeline takes it
    std::string device;          ///< empty: the pipeline's
    ov::AnyMap properties;       ///< as a pipeline takes them; empty: the pipeline's
};

/// Their names, one for each entry of generation_parameters.def among them:
/// `inline constexpr GenerationProperty<size_t> max_new_tokens{"max_new_tokens"};` and so on.
namespace properties {

#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    inline constexpr GenerationProperty<PropertyValue<type>::Held> name{#name};
#include "pagewheel/generation_parameters.def"

/// GenerationConfig::structured_output_config.
inline constexpr ov::Property<StructuredOutputConfig> structured_output_config{
    "structured_output_config"};

/// A property of a pipeline.
inline constexpr ov::Property<SchedulerConfig> scheduler_config{"scheduler_config"};

/// Properties of a pipeline: drafts come from what texts repeat, or from a model
/// (docs/speculation.md).
inline constexpr ov::Property<bool> prompt_lookup{"prompt_lookup"};
inline std::pair<std::string, ov::Any> draft_model(const std::filesystem::path& path,
                                                   const std::string& device = {},
                                                   const ov::AnyMap& properties = {}) {
    return {"draft_model", ov::Any(DraftModel{path, device, properties})};
}
template <class First, class... Properties>
IfProperties<std::pair<std::string, ov::Any>, First, Properties...> draft_model(
    const std::filesystem::path& path, const std::string& device, First&& first,
    Properties&&... rest) {
    return draft_model(path, device,
                       ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
}

/// A property of generate(): what the other properties are set in.
inline std::pair<std::string, ov::Any> generation_config(const GenerationConfig& config) {
    return {"generation_config", ov::Any(config)};
}
/// A property of generate().
PAGEWHEEL_API std::pair<std::string, ov::Any> streamer(const StreamerVariant& streamer);

}  // namespace properties
}  // namespace pagewheel
