#include "grammar/structured_output.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "base/check.hpp"
#include "grammar/constant_text.hpp"
#include "grammar/ebnf.hpp"
#include "grammar/json_schema.hpp"
#include "grammar/lark_text.hpp"
#include "grammar/qwen_xml.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;
using Node = Config::StructuralTag;

constexpr const char* any_text = "/(?s:.*)/";

/// What comes behind a piece of text.
struct Follow {
    enum class Kind {
        END,       ///< of the whole text
        CONSTANT,  ///< `text`, with which the piece around it ends
        OTHER
    };
    Kind kind = Kind::END;
    std::string text = {};
};

/// A piece of text as a Lark expression without operators: a name or a literal.
struct Piece {
    std::string expression;
    bool is_regular = false;   ///< it may stand in a terminal
    bool took_follow = false;  ///< the constant behind it is in it
};

class Translator {
public:
    Translator(const SpecialTokens& special_tokens, const GrammarLimits& limits)
        : m_special_tokens(special_tokens), m_limits(limits) {}

    std::string translate(const Node& root) {
        return m_lark.finish(in_rule(piece(root, Follow())));
    }

private:
    // One for each kind of node.
    Piece of(const Config::Regex& node, const Follow&) { return {lark_regex(node.value), true}; }
    Piece of(const Config::JSONSchema& node, const Follow&) {
        return {m_lark.add_rule("%json " + prepare_json_schema(node.value, m_limits))};
    }
    Piece of(const Config::EBNF& node, const Follow&) {
        return {ebnf_to_lark(node.value, m_lark, m_limits)};
    }
    Piece of(const Config::Lark& node, const Follow&) {
        return {m_lark.add_rule("%lark {\n" + node.value + "\n}")};
    }
    Piece of(const Config::ConstString& node, const Follow&) { return constant(node.value); }
    Piece of(const Config::Choice& node, const Follow& follow);
    Piece of(const Config::AnyText&, const Follow& follow);
    Piece of(const Config::QwenXMLParametersFormat& node, const Follow&) {
        return {qwen_xml_to_lark(node.json_schema, m_lark, m_limits)};
    }
    Piece of(const Config::Concat& node, const Follow& follow);
    Piece of(const Config::Union& node, const Follow& follow);
    Piece of(const Config::Tag& node, const Follow& follow) {
        return tag(node, node.begin, follow);
    }
    Piece of(const Config::TriggeredTags& node, const Follow& follow);
    Piece of(const Config::TagsWithSeparator& node, const Follow& follow);
    template <class T>
    Piece of(const std::shared_ptr<T>& node, const Follow& follow) {
        check_argument(node != nullptr, "a structural tag is missing");
        return of(*node, follow);
    }

    Piece piece(const Node& node, const Follow& follow);
    /// With `begin` instead of the tag's own.
    Piece tag(const Config::Tag& node, const std::string& begin, const Follow& follow);
    Piece constant(const std::string& text);
    /// Free text up to the first `text`, and this.
    Piece text_up_to(const std::string& text);
    Piece sequence(const std::vector<Piece>& pieces);
    Piece alternatives(const std::vector<Piece>& pieces);
    /// With the constant behind it, if there is one and it is not in it yet.
    Piece with_follow(Piece piece, const Follow& follow);
    std::string in_rule(const Piece& piece);
    Piece triggered(const Config::TriggeredTags& node, const Follow& follow);

    const SpecialTokens& m_special_tokens;
    const GrammarLimits& m_limits;
    LarkWriter m_lark;
    size_t m_depth = 0;
};

Piece Translator::piece(const Node& node, const Follow& follow) {
    if (++m_depth > m_limits.nesting)
        throw GrammarError(concat("a grammar whose parts lie more than ", m_limits.nesting,
                                  " deep in each other"));
    const Piece result = std::visit([&](const auto& each) { return of(each, follow); }, node);
    --m_depth;
    return result;
}

std::string Translator::in_rule(const Piece& piece) {
    return piece.is_regular ? m_lark.add_terminal(piece.expression) : piece.expression;
}

Piece Translator::sequence(const std::vector<Piece>& pieces) {
    if (pieces.size() == 1) return pieces[0];
    const auto is_regular = [](const Piece& each) { return each.is_regular; };
    std::string body;
    if (std::all_of(pieces.begin(), pieces.end(), is_regular)) {
        for (const Piece& each : pieces) body += each.expression + ' ';
        return {m_lark.add_terminal(body), true};
    }
    // Neighbours that are regular become one terminal: together they match exactly.
    for (auto begin = pieces.begin(); begin != pieces.end();) {
        const auto end =
            begin->is_regular ? std::find_if_not(begin, pieces.end(), is_regular) : begin + 1;
        body += in_rule(sequence({begin, end})) + ' ';
        begin = end;
    }
    return {m_lark.add_rule(body)};
}

Piece Translator::alternatives(const std::vector<Piece>& pieces) {
    if (pieces.size() == 1) return pieces[0];
    std::string regular, others;
    for (const Piece& each : pieces) {
        std::string& body = each.is_regular ? regular : others;
        body += (body.empty() ? "" : " | ") + each.expression;
    }
    if (others.empty()) return {m_lark.add_terminal(regular), true};
    if (!regular.empty()) others += " | " + m_lark.add_terminal(regular);
    return {m_lark.add_rule(others)};
}

Piece Translator::constant(const std::string& text) {
    std::vector<Piece> pieces;
    for (const ConstantPart& part : split_at_special_tokens(text, m_special_tokens)) {
        if (part.token >= 0)
            pieces.push_back({concat("<[", part.token, "]>")});
        else
            pieces.push_back({lark_string(part.text), true});
    }
    return sequence(pieces);
}

Piece Translator::text_up_to(const std::string& text) {
    const auto parts = split_at_special_tokens(text, m_special_tokens);
    // A special token is no text, so it ends what is before it.
    if (parts.front().token >= 0) return sequence({{any_text, true}, constant(text)});
    Piece result{m_lark.add_rule(any_text + (' ' + lark_string(parts.front().text)), "[lazy]")};
    if (parts.size() > 1)
        result = sequence({result, constant(text.substr(parts.front().text.size()))});
    return result;
}

Piece Translator::with_follow(Piece piece, const Follow& follow) {
    if (follow.kind != Follow::Kind::CONSTANT || piece.took_follow) return piece;
    return sequence({std::move(piece), constant(follow.text)});
}

Piece Translator::of(const Config::Choice& node, const Follow&) {
    if (node.values.empty()) throw GrammarError("Choice without values");
    std::vector<Piece> pieces;
    for (const std::string& value : node.values) pieces.push_back(constant(value));
    return alternatives(pieces);
}

Piece Translator::of(const Config::AnyText&, const Follow& follow) {
    switch (follow.kind) {
        case Follow::Kind::END:
            return {any_text, true};
        case Follow::Kind::CONSTANT: {
            Piece result = text_up_to(follow.text);
            result.took_follow = true;
            return result;
        }
        case Follow::Kind::OTHER:
            break;
    }
    throw GrammarError(
        "AnyText must be the last part, or be followed by a ConstString or a Tag that shows where "
        "it ends");
}

/// What a part begins with for sure: free text before it goes up to this.
const std::string* leading_constant(const Node& node) {
    const std::string* text = nullptr;
    if (const auto* constant = std::get_if<Config::ConstString>(&node)) text = &constant->value;
    if (const auto* tag = std::get_if<std::shared_ptr<Config::Tag>>(&node)) text = &(*tag)->begin;
    return text && !text->empty() ? text : nullptr;
}

bool is_text_pattern(const Node& node) {
    return std::holds_alternative<Config::Regex>(node) ||
           std::holds_alternative<Config::ConstString>(node) ||
           std::holds_alternative<Config::Choice>(node) ||
           std::holds_alternative<Config::AnyText>(node);
}

Piece Translator::of(const Config::Concat& node, const Follow& follow) {
    const auto& elements = node.elements;
    if (elements.empty()) throw GrammarError("Concat without elements");
    const bool is_one_pattern = follow.kind == Follow::Kind::END &&
                                std::all_of(elements.begin(), elements.end(), &is_text_pattern);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < elements.size(); ++i) {
        const bool is_last = i + 1 == elements.size();
        const bool is_text = std::holds_alternative<Config::AnyText>(elements[i]);
        const std::string* next = is_last ? nullptr : leading_constant(elements[i + 1]);
        if (is_text && is_one_pattern) {
            pieces.push_back({any_text, true});
        } else if (is_text && next) {
            pieces.push_back(text_up_to(*next));
            ++i;
            if (const auto* tagged = std::get_if<std::shared_ptr<Config::Tag>>(&elements[i]))
                pieces.push_back(tag(
                    **tagged, {}, i + 1 == elements.size() ? follow : Follow{Follow::Kind::OTHER}));
        } else {
            pieces.push_back(piece(elements[i], is_last ? follow : Follow{Follow::Kind::OTHER}));
        }
    }
    const bool took_follow = pieces.back().took_follow;
    Piece result = sequence(pieces);
    result.took_follow = took_follow;
    return result;
}

Piece Translator::of(const Config::Union& node, const Follow& follow) {
    if (node.elements.empty()) throw GrammarError("Union without elements");
    std::vector<Piece> pieces;
    bool took_follow = false;
    for (const Node& element : node.elements) {
        pieces.push_back(piece(element, follow));
        took_follow = took_follow || pieces.back().took_follow;
    }
    if (took_follow)  // then all of them do
        for (Piece& each : pieces) each = with_follow(each, follow);
    Piece result = alternatives(pieces);
    result.took_follow = took_follow;
    return result;
}

Piece Translator::tag(const Config::Tag& node, const std::string& begin, const Follow& follow) {
    const Follow inner = node.end.empty() ? follow : Follow{Follow::Kind::CONSTANT, node.end};
    Piece content = piece(node.content, inner);
    std::vector<Piece> pieces;
    if (!begin.empty()) pieces.push_back(constant(begin));
    if (node.end.empty()) {
        pieces.push_back(content);
    } else if (content.took_follow) {
        pieces.push_back(content);
    } else {
        pieces.push_back(content);
        pieces.push_back(constant(node.end));
    }
    Piece result = sequence(pieces);
    result.took_follow = node.end.empty() && content.took_follow;
    return result;
}

/// The one trigger that the tag begins with.
const std::string& trigger_of(const Config::Tag& tag, const std::vector<std::string>& triggers) {
    const std::string* found = nullptr;
    for (const std::string& trigger : triggers) {
        if (trigger.empty() || tag.begin.rfind(trigger, 0) != 0) continue;
        if (found)
            throw GrammarError(concat("the tag that begins with '", tag.begin,
                                      "' has several triggers: '", *found, "' and '", trigger,
                                      "'"));
        found = &trigger;
    }
    if (!found)
        throw GrammarError(
            concat("the tag that begins with '", tag.begin, "' begins with none of the triggers"));
    return *found;
}

Piece Translator::triggered(const Config::TriggeredTags& node, const Follow& follow) {
    std::vector<Piece> pieces;
    for (const std::string& trigger : node.triggers) {
        std::vector<Piece> tags;
        for (const Config::Tag& each : node.tags)
            if (&trigger_of(each, node.triggers) == &trigger)
                tags.push_back(tag(each, each.begin.substr(trigger.size()), follow));
        if (tags.empty())
            throw GrammarError(concat("no tag begins with the trigger '", trigger, "'"));
        pieces.push_back(sequence({text_up_to(trigger), alternatives(tags)}));
    }
    return alternatives(pieces);
}

Piece Translator::of(const Config::TriggeredTags& node, const Follow& follow) {
    if (node.tags.empty() || node.triggers.empty())
        throw GrammarError("TriggeredTags needs at least one tag and one trigger");
    const Follow inside{Follow::Kind::OTHER};
    std::vector<Piece> pieces;
    if (node.at_least_one) {
        std::vector<Piece> first;
        for (const Config::Tag& each : node.tags) {
            trigger_of(each, node.triggers);
            first.push_back(tag(each, each.begin, inside));
        }
        pieces.push_back(alternatives(first));
        if (node.stop_after_first) return pieces[0];
    }
    if (follow.kind == Follow::Kind::OTHER)
        throw GrammarError(
            "TriggeredTags must be the last part: the text behind them would be part of them");
    const Piece free_text =
        follow.kind == Follow::Kind::CONSTANT ? text_up_to(follow.text) : Piece{any_text, true};
    const std::string tags = in_rule(triggered(node, inside));
    if (node.stop_after_first) {
        pieces.push_back(alternatives({with_follow({tags}, follow), {in_rule(free_text)}}));
    } else {
        pieces.push_back({m_lark.add_rule(tags + "*")});
        pieces.push_back({in_rule(free_text)});
    }
    Piece result = sequence(pieces);
    result.took_follow = follow.kind == Follow::Kind::CONSTANT;
    return result;
}

Piece Translator::of(const Config::TagsWithSeparator& node, const Follow& follow) {
    if (node.tags.empty()) throw GrammarError("TagsWithSeparator without tags");
    (void)follow;
    std::vector<Piece> tags;
    for (const Config::Tag& each : node.tags)
        tags.push_back(tag(each, each.begin, Follow{Follow::Kind::OTHER}));
    Piece result = alternatives(tags);
    const auto add = [&](const std::string& body) {
        result.expression = result.is_regular ? m_lark.add_terminal(body) : m_lark.add_rule(body);
    };
    if (!node.stop_after_first) {
        Piece more = result;
        if (!node.separator.empty()) more = sequence({constant(node.separator), result});
        result.is_regular = result.is_regular && more.is_regular;
        add(result.expression + ' ' + more.expression + '*');
    }
    if (!node.at_least_one) add(result.expression + '?');
    return result;
}

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

/// Calls visit for each JSON schema of a node.
void for_each_schema(const Node& node, const std::function<void(const std::string&)>& visit) {
    const auto visit_tag = [&](const Config::Tag& tag) { for_each_schema(tag.content, visit); };
    if (const auto* schema = std::get_if<Config::JSONSchema>(&node)) visit(schema->value);
    if (const auto* qwen = std::get_if<Config::QwenXMLParametersFormat>(&node))
        visit(qwen->json_schema);
    if (const auto* all = std::get_if<std::shared_ptr<Config::Concat>>(&node))
        for (const Node& each : (*all)->elements) for_each_schema(each, visit);
    if (const auto* all = std::get_if<std::shared_ptr<Config::Union>>(&node))
        for (const Node& each : (*all)->elements) for_each_schema(each, visit);
    if (const auto* tag = std::get_if<std::shared_ptr<Config::Tag>>(&node)) visit_tag(**tag);
    if (const auto* all = std::get_if<std::shared_ptr<Config::TriggeredTags>>(&node))
        std::for_each((*all)->tags.begin(), (*all)->tags.end(), visit_tag);
    if (const auto* all = std::get_if<std::shared_ptr<Config::TagsWithSeparator>>(&node))
        std::for_each((*all)->tags.begin(), (*all)->tags.end(), visit_tag);
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
        return {"json_schema", prepare_json_schema(schema->value, limits)};
    if (const auto* lark = std::get_if<Config::Lark>(&root)) return {"lark", lark->value};
    return {"lark", Translator(special_tokens, limits).translate(root)};
}

std::string explain_refusal(const StructuredOutputConfig& config, const std::string& error) {
    const Node root = root_of(config);
    if (std::holds_alternative<Config::Lark>(root)) return "Lark grammar, line(column) " + error;
    // Places in our Lark say nothing to the caller.
    const std::string within = "failed to compile JSON schema: ";
    const size_t begin = error.find(within);
    const bool is_schema =
        begin != std::string::npos || std::holds_alternative<Config::JSONSchema>(root);
    const size_t place_end = error.rfind("at ", 0) == 0 ? error.find("): ") + 3 : 0;
    std::string reason =
        error.substr(begin == std::string::npos ? place_end : begin + within.size());
    reason.resize(std::min(reason.find("\n   1 |"), reason.size()));
    std::string result;
    for_each_schema(root, [&](const std::string& schema) {
        if (result.empty()) result = find_in_schema(schema, reason);
    });
    if (result.empty()) result = reason;
    return (is_schema ? "JSON schema: " : "grammar: ") + in_plain_words(result);
}

}  // namespace pagewheel
