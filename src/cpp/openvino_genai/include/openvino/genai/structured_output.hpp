// What shape a generated text must have.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "openvino/core/any.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel::openvino_genai {

/// pagewheel::StructuredOutputConfig, but it and its parts have constructors.
struct StructuredOutputConfig : pagewheel::StructuredOutputConfig {
    using Base = std::tuple<pagewheel::StructuredOutputConfig>;  ///< What an ov::Any of it gives.
    using Ours = pagewheel::StructuredOutputConfig;
    using CompoundGrammar = StructuralTag;

    /// A part that holds one text.
    template <class Part, std::string Part::* member>
    struct OfText : Part {
        explicit OfText(const std::string& text = {}) { this->*member = text; }
    };
    using Regex = OfText<Ours::Regex, &Ours::Regex::value>;
    using JSONSchema = OfText<Ours::JSONSchema, &Ours::JSONSchema::value>;
    using EBNF = OfText<Ours::EBNF, &Ours::EBNF::value>;
    using ConstString = OfText<Ours::ConstString, &Ours::ConstString::value>;
    using QwenXMLParametersFormat =
        OfText<Ours::QwenXMLParametersFormat, &Ours::QwenXMLParametersFormat::json_schema>;
    using AnyText = Ours::AnyText;
    /// A part that holds others.
    template <class Part>
    struct OfElements : Part {
        OfElements(const StructuralTag& left, const StructuralTag& right) {
            this->elements = {left, right};
        }
        explicit OfElements(std::vector<StructuralTag> all = {}) {
            this->elements = std::move(all);
        }
    };
    using Concat = OfElements<Ours::Concat>;
    using Union = OfElements<Ours::Union>;
    struct Tag : Ours::Tag {
        Tag() = default;
        Tag(const std::string& opening, const StructuralTag& between, const std::string& closing)
            : Ours::Tag{opening, between, closing} {}
    };
    struct TriggeredTags : Ours::TriggeredTags {
        TriggeredTags() = default;
        TriggeredTags(const std::vector<std::string>& all_triggers, const std::vector<Tag>& all,
                      bool one_or_more = false, bool at_most_one = false)
            : Ours::TriggeredTags{
                  all_triggers, {all.begin(), all.end()}, one_or_more, at_most_one} {}
    };
    struct TagsWithSeparator : Ours::TagsWithSeparator {
        TagsWithSeparator() = default;
        TagsWithSeparator(const std::vector<Tag>& all, const std::string& between,
                          bool one_or_more = false, bool at_most_one = false)
            : Ours::TagsWithSeparator{{all.begin(), all.end()}, between, one_or_more, at_most_one} {
        }
    };

    StructuredOutputConfig() = default;
    StructuredOutputConfig(const pagewheel::StructuredOutputConfig& config)
        : pagewheel::StructuredOutputConfig(config) {}
    explicit StructuredOutputConfig(const ov::AnyMap& properties) { update_config(properties); }

    /// Sets members by their names. Throws InvalidArgument for another one.
    void update_config(const ov::AnyMap& properties) {
        for (const auto& [name, value] : properties)
            if (name == "json_schema")
                json_schema = value.as<std::string>();
            else if (name == "regex")
                regex = value.as<std::string>();
            else if (name == "grammar")
                grammar = value.as<std::string>();
            else if (name == "structural_tags_config" && value.is<StructuralTagsConfig>())
                structural_tags_config = value.as<StructuralTagsConfig>();
            else if (name == "structural_tags_config")
                structural_tags_config = value.as<StructuralTag>();
            else if (name == "compound_grammar")
                compound_grammar = value.as<StructuralTag>();
            else
                throw InvalidArgument(
                    "StructuredOutputConfig has no '" + name +
                    "'; known are: compound_grammar, grammar, json_schema, regex, "
                    "structural_tags_config");
    }
};

/// One after the other, and one of both.
inline std::shared_ptr<StructuredOutputConfig::Concat> operator+(
    const StructuredOutputConfig::StructuralTag& left,
    const StructuredOutputConfig::StructuralTag& right) {
    return std::make_shared<StructuredOutputConfig::Concat>(left, right);
}
inline std::shared_ptr<StructuredOutputConfig::Union> operator|(
    const StructuredOutputConfig::StructuralTag& left,
    const StructuredOutputConfig::StructuralTag& right) {
    return std::make_shared<StructuredOutputConfig::Union>(left, right);
}

inline constexpr ov::Property<std::string> json_schema{"json_schema"};
inline constexpr ov::Property<std::string> regex{"regex"};
inline constexpr ov::Property<std::string> grammar{"grammar"};
inline constexpr ov::Property<StructuralTagsConfig> structural_tags_config{
    "structural_tags_config"};
inline constexpr ov::Property<StructuredOutputConfig::StructuralTag> compound_grammar{
    "compound_grammar"};

}  // namespace pagewheel::openvino_genai
