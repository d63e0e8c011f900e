// What shape a generated text must have.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// A piece of text that begins and ends in a given way, with JSON between.
struct StructuralTagItem {
    std::string begin;
    std::string schema;  ///< JSON schema
    std::string end;
};

/// Free text, in which each trigger begins one of the tags.
struct StructuralTagsConfig {
    std::vector<StructuralTagItem> structural_tags;
    std::vector<std::string> triggers;  ///< Each tag's `begin` starts with exactly one of them.
};

/// The shape of a text: exactly one of the first five members is set. docs/structured_output.md
/// says what each grammar can express.
struct PAGEWHEEL_API StructuredOutputConfig {
    /// A regular expression in the syntax of Rust's regex crate. The whole text matches; ^ and $ at
    /// the ends are ignored.
    struct Regex {
        std::string value;
    };
    /// JSON that the schema (a JSON text) validates, with properties in the schema's order, and no
    /// others unless `allow_additional_properties` or the schema says so.
    struct JSONSchema {
        std::string value;
    };
    /// Rules like `root ::= "a" [0-9]+ other`, as xgrammar and llama.cpp write them.
    struct EBNF {
        std::string value;
    };
    /// llguidance's Lark, with its rule `start`.
    struct Lark {
        std::string value;
    };
    struct ConstString {
        std::string value;
    };
    /// One of several texts.
    struct Choice {
        std::vector<std::string> values;
    };
    struct AnyText {};
    /// `<parameter=name>value</parameter>` for each property of the schema, as Qwen3-Coder calls
    /// tools. Strings are written as they are, other values as JSON.
    struct QwenXMLParametersFormat {
        std::string json_schema;
    };
    struct Concat;
    struct Union;
    struct Tag;
    struct TriggeredTags;
    struct TagsWithSeparator;
    using StructuralTag =
        std::variant<Regex, JSONSchema, EBNF, Lark, ConstString, Choice, AnyText,
                     QwenXMLParametersFormat, std::shared_ptr<Concat>, std::shared_ptr<Union>,
                     std::shared_ptr<Tag>, std::shared_ptr<TriggeredTags>,
                     std::shared_ptr<TagsWithSeparator>>;

    /// Parts, one after the other.
    struct Concat {
        std::vector<StructuralTag> elements;
    };
    /// Parts, of which the text is one.
    struct Union {
        std::vector<StructuralTag> elements;
    };
    struct Tag {
        std::string begin;
        StructuralTag content;  ///< AnyText ends where `end` first comes.
        std::string end;
    };
    /// Free text, in which each trigger begins one of the tags.
    struct TriggeredTags {
        std::vector<std::string> triggers;  ///< Each tag's `begin` starts with exactly one of them.
        std::vector<Tag> tags;
        bool at_least_one = false;  ///< The text begins with a tag.
        bool stop_after_first = false;
    };
    struct TagsWithSeparator {
        std::vector<Tag> tags;
        std::string separator;
        bool at_least_one = false;
        bool stop_after_first = false;
    };

    std::optional<std::string> json_schema;
    std::optional<std::string> regex;
    std::optional<std::string> grammar;  ///< EBNF
    std::optional<std::variant<StructuralTagsConfig, StructuralTag>> structural_tags_config;
    std::optional<StructuralTag> compound_grammar;

    /// Not empty: free text comes first, such as a model's reasoning. The grammar begins behind the
    /// first place where the text is this one, such as "</think>", and white space.
    std::string begin_after;

    /// What a JSON schema means that does not mention additionalProperties. False: its objects have
    /// the declared properties only. True: they may have others, as JSON Schema specifies.
    bool allow_additional_properties = false;

    /// Throws InvalidArgument unless exactly one member is set.
    void validate() const;
};

}  // namespace pagewheel
