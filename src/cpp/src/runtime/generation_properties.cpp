// GenerationConfig from OpenVINO's properties.
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/properties.hpp"
#include "text/json_value.hpp"

namespace pagewheel {
namespace {

template <class T>
bool take(const ov::Any& value, T& out) {
    if (!value.is<T>()) return false;
    out = value.as<T>();
    return true;
}

template <class T>
bool take(const ov::Any& value, std::optional<T>& out) {
    T held;
    if (value.is<std::optional<T>>())
        out = value.as<std::optional<T>>();
    else if (take(value, held))
        out = held;
    else
        return false;
    return true;
}

/// By name: sets a parameter to a value of its own type, which JSON may not have. Whether it is.
using Taker = bool (*)(const ov::Any& value, GenerationConfig& config);

const std::map<std::string, Taker>& takers() {
    static const std::map<std::string, Taker> all{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    {#name,                                                                \
     [](const ov::Any& value, GenerationConfig& config) { return take(value, config.name); }},
#include "pagewheel/generation_parameters.def"
        {"structured_output_config",
         [](const ov::Any& value, GenerationConfig& config) {
             if (take(value, config.structured_output_config)) return true;
             refuse_argument(ParameterName("structured_output_config"), " has type ",
                             value.type_info().name(), "; allowed: StructuredOutputConfig");
         }},
    };
    return all;
}

nlohmann::ordered_json json_for(const std::string& name, const ov::Any& value) {
    try {
        return json_of_any(value);
    } catch (const InvalidArgument& error) {
        refuse_argument("generation parameter '", ParameterName(name), "': ", error.what());
    }
}

}  // namespace

void set_properties(GenerationConfig& config, const ov::AnyMap& properties) {
    GenerationConfig updated = config;
    const auto base = properties.find("generation_config");
    if (base != properties.end())
        check_argument(take(base->second, updated), ParameterName("generation_config"),
                       " has type ", base->second.type_info().name(),
                       "; allowed: GenerationConfig");
    auto others = nlohmann::ordered_json::object();
    for (const auto& [name, value] : properties) {
        if (name == "generation_config") continue;
        const auto taker = takers().find(name);
        const bool is_eos = name == "eos_token_id";  // which is a stop token, too
        const bool is_taken = !is_eos && taker != takers().end() && taker->second(value, updated);
        if (!is_taken) others[name] = json_for(name, value);
    }
    updated.update_from_json(json_text(others));
    config = std::move(updated);
}

}  // namespace pagewheel
