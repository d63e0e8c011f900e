#include "grammar/structured_output.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/check.hpp"
#include "grammar/json_schema.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;
using Node = Config::StructuralTag;

Node to_node(const StructuralTagsConfig& config) {
    auto tags = std::make_shared<Config::TriggeredTags>();
    tags->triggers = config.triggers;
    for (const StructuralTagItem& item : config.structural_tags)
        tags->tags.push_back({item.begin, Config::JSONSchema{item.schema}, item.end});
    return tags;
}

/// What the member that is set asks for.
Node shape_of(const Config& config) {
    config.validate();
    if (config.json_schema) return Config::JSONSchema{*config.json_schema};
    if (config.regex) return Config::Regex{*config.regex};
    if (config.grammar) return Config::EBNF{*config.grammar};
    if (config.compound_grammar) return *config.compound_grammar;
    if (const auto* tags = std::get_if<StructuralTagsConfig>(&*config.structural_tags_config))
        return to_node(*tags);
    return std::get<Node>(*config.structural_tags_config);
}

Node root_of(const Config& config) {
    Node shape = shape_of(config);
    if (config.begin_after.empty()) return shape;
    auto all = std::make_shared<Config::Concat>();
    all->elements = {Config::AnyText{}, Config::ConstString{config.begin_after},
                     Config::Regex{"[ \\t\\r\\n]{0,8}"}, std::move(shape)};
    return all;
}

std::string in_plain_words(std::string error) {
    const std::string keys = "Unimplemented keys: ";
    const size_t begin = error.find(keys);
    if (begin != std::string::npos)
        error.replace(begin, keys.size(), "keywords that are not supported: ");
    return error;
}

}  // namespace

void StructuredOutputConfig::validate() const {
    const int count = json_schema.has_value() + regex.has_value() + grammar.has_value() +
                      structural_tags_config.has_value() + compound_grammar.has_value();
    check_argument(count == 1, "StructuredOutputConfig has ", count,
                   " of json_schema, regex, grammar, structural_tags_config and compound_grammar; "
                   "allowed is one");
}

GrammarSource to_grammar_source(const StructuredOutputConfig& config,
                                const SpecialTokens& special_tokens, const GrammarLimits& limits) {
    const Node root = root_of(config);
    // As they are: errors then tell places in the caller's text.
    if (const auto* schema = std::get_if<Config::JSONSchema>(&root))
        return {"json_schema",
                prepare_json_schema(schema->value, limits, config.allow_additional_properties),
                {schema->value}};
    if (const auto* lark = std::get_if<Config::Lark>(&root)) {
        check_lark_numbers(lark->value);
        return {"lark", lark->value};
    }
    return structural_tag_to_lark(root, special_tokens, limits, config.allow_additional_properties);
}

std::string explain_refusal(const StructuredOutputConfig& config, const GrammarSource& source,
                            const std::string& error) {
    const Node root = root_of(config);
    if (std::holds_alternative<Config::Lark>(root)) return "Lark grammar, line(column) " + error;
    // Places in our Lark say nothing to the caller.
    const std::string within = "failed to compile JSON schema: ";
    const size_t begin = error.find(within);
    const bool is_schema = begin != std::string::npos || source.kind == "json_schema";
    const size_t place_end = error.rfind("at ", 0) == 0 ? error.find("): ") + 3 : 0;
    std::string reason =
        error.substr(begin == std::string::npos ? place_end : begin + within.size());
    reason.resize(std::min(reason.find("\n   1 |"), reason.size()));
    std::string places;
    for (const std::string& schema : source.schemas)
        if (is_schema && places.empty()) places = refused_places(schema);
    return (is_schema ? "JSON schema: " : "grammar: ") + in_plain_words(reason) +
           (places.empty() ? "" : "; at " + places);
}

}  // namespace pagewheel
