// Grammars of a call's arguments, from the JSON schema of its function, and nodes to put them
// together.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/structured_output.hpp"
#include "parsing/message_format.hpp"

namespace pagewheel {

using GrammarNode = StructuredOutputConfig::StructuralTag;

inline GrammarNode constant_node(std::string text) {
    return StructuredOutputConfig::ConstString{std::move(text)};
}

/// Without empty constants, if there is anything else.
inline GrammarNode sequence_node(const std::vector<GrammarNode>& nodes) {
    auto all = std::make_shared<StructuredOutputConfig::Concat>();
    for (const GrammarNode& node : nodes) {
        const auto* text = std::get_if<StructuredOutputConfig::ConstString>(&node);
        if (!text || !text->value.empty()) all->elements.push_back(node);
    }
    if (all->elements.empty()) return constant_node("");
    return all->elements.size() == 1 ? all->elements.front() : GrammarNode(all);
}

inline GrammarNode either_node(std::vector<GrammarNode> nodes) {
    if (nodes.size() == 1) return nodes.front();
    return std::make_shared<StructuredOutputConfig::Union>(
        StructuredOutputConfig::Union{std::move(nodes)});
}

inline GrammarNode tag_node(std::string begin, GrammarNode content, std::string end) {
    return std::make_shared<StructuredOutputConfig::Tag>(
        StructuredOutputConfig::Tag{std::move(begin), std::move(content), std::move(end)});
}

/// One or more of the node, with the separator between them.
inline GrammarNode list_node(GrammarNode node, std::string separator, bool at_least_one = true,
                             bool stop_after_first = false) {
    using Tags = StructuredOutputConfig::TagsWithSeparator;
    return std::make_shared<Tags>(
        Tags{{{"", std::move(node), ""}}, std::move(separator), at_least_one, stop_after_first});
}

inline GrammarNode any_number_node(GrammarNode node) {
    return list_node(std::move(node), "", /*at_least_one=*/false);
}

inline GrammarNode optional_node(GrammarNode node) {
    return list_node(std::move(node), "", /*at_least_one=*/false, /*stop_after_first=*/true);
}

/// `whose` names the family and the function in errors. Throws InvalidArgument for a schema that
/// the format cannot be held to.
GrammarNode argument_grammar(const ArgumentFormat& format, const nlohmann::ordered_json& schema,
                             const std::string& whose);

}  // namespace pagewheel
