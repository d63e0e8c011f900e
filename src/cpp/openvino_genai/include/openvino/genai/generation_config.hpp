// How one request is to be generated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "openvino/core/any.hpp"
#include "openvino/genai/lora_adapter.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/genai/parsers.hpp"
#include "openvino/genai/structured_output.hpp"
#include "pagewheel/generation_config.hpp"

namespace pagewheel::openvino_genai {

// What trees of drafts go by, which are not there yet: type, name and default.
#define PAGEWHEEL_SPECULATION(DO)   \
    DO(size_t, branching_factor, 1) \
    DO(size_t, tree_depth, 0)

#define PAGEWHEEL_PROPERTY(type, name, initial) \
    inline constexpr GenerationProperty<type> name{#name};
PAGEWHEEL_SPECULATION(PAGEWHEEL_PROPERTY)
#undef PAGEWHEEL_PROPERTY

/// pagewheel::GenerationConfig, but rng_seed is 0, and eos_token_id alone is no end.
class GenerationConfig : public pagewheel::GenerationConfig {
public:
    using Base = std::tuple<pagewheel::GenerationConfig>;  ///< What an ov::Any of it gives, too.

    // Trees of drafts and LoRA are not there yet: what asks for them is kept, and refused
    // where the config is used.
#define PAGEWHEEL_MEMBER(type, name, initial) type name = initial;
    PAGEWHEEL_SPECULATION(PAGEWHEEL_MEMBER)
#undef PAGEWHEEL_MEMBER
    std::optional<AdapterConfig> adapters;

    GenerationConfig() { rng_seed = 0; }
    explicit GenerationConfig(const std::filesystem::path& json_path)
        : GenerationConfig(pagewheel::GenerationConfig(json_path)) {}
    GenerationConfig(const pagewheel::GenerationConfig& config)
        : pagewheel::GenerationConfig(config) {
        if (!rng_seed) rng_seed = 0;
    }

    void update_generation_config(ov::AnyMap properties) {
        GenerationConfig changed = *this;
#define PAGEWHEEL_TAKE(type, name, initial) changed.take(properties, #name, changed.name);
        PAGEWHEEL_SPECULATION(PAGEWHEEL_TAKE)
#undef PAGEWHEEL_TAKE
        AdapterConfig with;
        if (changed.take(properties, "adapters", with)) changed.adapters = with;
        set_properties(changed, properties);
        *this = changed;
    }
    template <class... Properties>
    IfProperties<void, Properties...> update_generation_config(Properties&&... properties) {
        update_generation_config(ov::AnyMap{std::forward<Properties>(properties)...});
    }
    /// What is left of max_length after such a prompt, unless max_new_tokens is set.
    size_t get_max_new_tokens(size_t prompt_length = 0) const {
        if (max_new_tokens != unlimited) return max_new_tokens;
        return max_length == unlimited ? unlimited
                                       : max_length - std::min(max_length, prompt_length);
    }
    bool is_tree_search() const { return tree_depth > 0; }
    bool is_structured_output_generation() const { return structured_output_config.has_value(); }

    /// Throws InvalidArgument where it asks for what is not there.
    void check_supported() const {
#define PAGEWHEEL_REFUSE(type, name, initial) \
    if (name != initial)                      \
        refuse_missing(std::string(#name " is ") + std::to_string(name), "trees of drafts");
        PAGEWHEEL_SPECULATION(PAGEWHEEL_REFUSE)
#undef PAGEWHEEL_REFUSE
    }

    /// Throws InvalidArgument also where stop_token_ids does not hold eos_token_id.
    void validate() const {
        if (eos_token_id != -1 && stop_token_ids.count(eos_token_id) == 0)
            throw InvalidArgument("stop_token_ids is without eos_token_id, " +
                                  std::to_string(eos_token_id) + ": set_eos_token_id() sets both");
        validate_speculation();
        pagewheel::GenerationConfig::validate();
    }

private:
    void validate_speculation() const {
        const auto require = [](bool is_right, const char* message) {
            if (!is_right) throw InvalidArgument(message);
        };
        require(!is_tree_search() || num_assistant_tokens >= tree_depth,
                "num_assistant_tokens is less than tree_depth; allowed: at least as many");
        require(!is_tree_search() || branching_factor > 0,
                "branching_factor is 0 with tree_depth; allowed: 1 or more");
        require(!is_tree_search() || !do_sample,
                "tree_depth is set with do_sample; allowed: one of them");
        require(!is_assisting_generation() || num_return_sequences <= 1,
                "num_return_sequences is above 1 with speculative decoding; allowed: 1");
    }
    /// Moves a property into the member; whether there is one.
    template <class T>
    static bool take(ov::AnyMap& properties, const char* name, T& member) {
        const auto found = properties.find(name);
        if (found == properties.end()) return false;
        try {
            if constexpr (std::is_integral_v<T>)
                if (found->second.template as<int64_t>() < 0) throw InvalidArgument("");
            member = found->second.template as<T>();
        } catch (const ov::Exception&) {
            throw InvalidArgument(std::string(name) + " is not of its type or out of range");
        }
        properties.erase(found);
        return true;
    }
};

/// A property of generate(): what the other ones are set in.
inline std::pair<std::string, ov::Any> generation_config(const GenerationConfig& config) {
    return {"generation_config", ov::Any(config)};
}

/// What pagewheel generates by. Throws InvalidArgument where it asks for what is not there.
inline const pagewheel::GenerationConfig& supported(const GenerationConfig& config) {
    config.check_supported();
    return config;
}

/// Properties of generate(), of which those that are kept alone are taken out. Throws
/// InvalidArgument where they ask for what is not there.
inline ov::AnyMap supported(ov::AnyMap properties) {
    ov::AnyMap kept;
#define PAGEWHEEL_NAME(type, name, initial) #name,
    for (const char* name : {PAGEWHEEL_SPECULATION(PAGEWHEEL_NAME) "adapters"})
#undef PAGEWHEEL_NAME
        if (const auto node = properties.extract(name)) kept[name] = node.mapped();
    GenerationConfig config;
    config.update_generation_config(kept);
    config.check_supported();
    const auto whole = properties.find("generation_config");
    if (whole != properties.end() && whole->second.is<GenerationConfig>())
        whole->second.as<GenerationConfig>().check_supported();
    return properties;
}

#undef PAGEWHEEL_SPECULATION

}  // namespace pagewheel::openvino_genai
