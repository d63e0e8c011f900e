#include "grammar/structured_output.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "grammar/ebnf.hpp"
#include "grammar/json_schema.hpp"
#include "grammar/lark_text.hpp"
#include "grammar/transition_network.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;
using Node = Config::StructuralTag;
using nlohmann::ordered_json;

constexpr const char* any_text = "/(?s:.*)/";

/// A string's values as they are, without quotes.
Node qwen_string(const ordered_json& schema, const std::string& name) {
    ordered_json values;
    for (const auto& [keyword, value] : schema.items()) {
        if (keyword == "enum")
            values = value;
        else if (keyword == "const")
            values = ordered_json::array({value});
        else if (keyword != "type" && !is_annotation(keyword))
            throw GrammarError(concat("QwenXMLParametersFormat: keyword '", keyword,
                                      "' of the string at /properties/", name,
                                      " is not supported; allowed are enum and const"));
    }
    if (values.is_null()) return Config::AnyText{};
    Config::Choice choice;
    for (const ordered_json& value : values) {
        if (!value.is_string())
            throw GrammarError(concat("QwenXMLParametersFormat: the enum at /properties/", name,
                                      " has values that are no strings"));
        choice.values.push_back(value.get<std::string>());
    }
    return choice;
}

/// `<parameter=name>value</parameter>` for each property, in the schema's order. Throws
/// GrammarError for a schema that says more than the format can hold.
std::vector<Node> qwen_parameters(const std::string& schema, const GrammarLimits& limits) {
    prepare_json_schema(schema, limits, true);  // checks it
    const ordered_json root = ordered_json::parse(schema);
    for (const auto& [keyword, value] : root.items())
        if (!is_annotation(keyword) && keyword != "type" && keyword != "properties" &&
            keyword != "required" && keyword != "additionalProperties")
            throw GrammarError(concat("QwenXMLParametersFormat: keyword '", keyword,
                                      "' of the schema is not supported"));
    const bool is_object = root.value("type", ordered_json("object")) == "object";
    if (!is_object || !root.contains("properties") || !root["properties"].is_object())
        throw GrammarError("QwenXMLParametersFormat needs a schema of an object with properties");

    const Config::Regex space{"[ \\t\\r\\n]{0,128}"};
    const auto row = [](std::vector<Node> parts) {
        return std::make_shared<Config::Concat>(Config::Concat{std::move(parts)});
    };
    const ordered_json required = root.value("required", ordered_json::array());
    std::vector<Node> all;
    for (const auto& [name, property] : root["properties"].items()) {
        const bool is_string =
            property.is_object() && property.value("type", ordered_json()) == "string";
        Node value = is_string ? qwen_string(property, name)
                               : Config::JSONSchema{schema_part(property, root)};
        if (!std::holds_alternative<Config::AnyText>(value)) value = row({space, value, space});
        const auto tag = std::make_shared<Config::Tag>(
            Config::Tag{"<parameter=" + name + ">", value, "</parameter>"});
        auto parameter = std::make_shared<Config::TagsWithSeparator>();
        parameter->tags = {{"", row({space, tag}), ""}};
        parameter->at_least_one =
            std::find(required.begin(), required.end(), name) != required.end();
        parameter->stop_after_first = true;
        all.push_back(parameter);
    }
    all.push_back(space);
    return all;
}

/// What comes behind a piece of text.
struct Follow {
    enum class Kind {
        END,       ///< of the whole text
        CONSTANT,  ///< `text`, with which the part around it ends
        OTHER
    };
    Kind kind = Kind::END;
    std::string text = {};
};

using Piece = TransitionNetwork;

Piece regular_piece(std::string expression, bool is_constant = false) {
    return Piece::regular({std::move(expression), is_constant});
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

class TagTranslator {
public:
    TagTranslator(const SpecialTokens& special_tokens, const GrammarLimits& limits,
                  bool has_open_objects)
        : m_special_tokens(special_tokens),
          m_limits(limits),
          m_has_open_objects(has_open_objects) {}

    GrammarSource translate(const Node& root) {
        const std::string start = m_texts.name(piece(root, Follow()));
        return {"lark", m_lark.finish(start), m_schemas};
    }

private:
    // One for each kind of node. With `follow` it has the constant that comes behind the node, too.
    Piece of(const Config::Regex& node) { return regular_piece(lark_regex(node.value)); }
    Piece of(const Config::JSONSchema& node) {
        m_schemas.push_back(node.value);
        return Piece::rule(m_lark.add_rule(
            "%json " + prepare_json_schema(node.value, m_limits, m_has_open_objects)));
    }
    Piece of(const Config::EBNF& node) {
        return Piece::rule(ebnf_to_lark(node.value, m_lark, m_limits));
    }
    Piece of(const Config::Lark& node) {
        check_lark_numbers(node.value);
        return Piece::rule(m_lark.add_rule("%lark {\n" + node.value + "\n}"));
    }
    Piece of(const Config::ConstString& node) { return constant(node.value); }
    Piece of(const Config::Choice& node) {
        if (node.values.empty()) throw GrammarError("Choice without values");
        std::vector<Piece> pieces;
        for (const std::string& value : node.values) pieces.push_back(constant(value));
        return m_texts.alternatives(pieces);
    }
    Piece of(const Config::QwenXMLParametersFormat& node) {
        m_schemas.push_back(node.json_schema);
        // Apart, since the ways through n optional parts would be n squared.
        std::vector<Piece> pieces;
        for (const Node& each : qwen_parameters(node.json_schema, m_limits))
            pieces.push_back(m_texts.apart(piece(each, Follow{Follow::Kind::OTHER})));
        return m_texts.sequence(pieces);
    }
    Piece of(const Config::TagsWithSeparator& node) {
        if (node.tags.empty()) throw GrammarError("TagsWithSeparator without tags");
        std::vector<Piece> tags;
        for (const Config::Tag& each : node.tags)
            tags.push_back(tag(each, each.begin, Follow{Follow::Kind::OTHER}));
        Piece result = m_texts.alternatives(tags);
        if (!node.stop_after_first)
            result = m_texts.repeated(std::move(result), constant(node.separator));
        return node.at_least_one ? result : m_texts.optional(std::move(result));
    }

    template <class T>
    Piece of(const T& node, const Follow& follow) {
        return m_texts.sequence({of(node), constant(follow.text)});
    }
    Piece of(const Config::AnyText&, const Follow& follow) {
        switch (follow.kind) {
            case Follow::Kind::END:
                return regular_piece(any_text);
            case Follow::Kind::CONSTANT:
                return text_up_to(follow.text);
            case Follow::Kind::OTHER:
                break;
        }
        throw GrammarError(
            "AnyText must be the last part, or be followed by a ConstString or a Tag that shows "
            "where it ends");
    }
    Piece of(const Config::Concat& node, const Follow& follow) {
        const auto& elements = node.elements;
        if (elements.empty()) throw GrammarError("Concat without elements");
        const bool is_one_pattern = follow.kind == Follow::Kind::END &&
                                    std::all_of(elements.begin(), elements.end(), &is_text_pattern);
        const auto behind = [&](size_t i) {
            return i + 1 == elements.size() ? follow : Follow{Follow::Kind::OTHER};
        };
        std::vector<Piece> pieces;
        for (size_t i = 0; i < elements.size(); ++i) {
            const bool is_text = std::holds_alternative<Config::AnyText>(elements[i]);
            const std::string* next =
                i + 1 == elements.size() ? nullptr : leading_constant(elements[i + 1]);
            if (is_text && is_one_pattern) {
                pieces.push_back(regular_piece(any_text));
            } else if (is_text && next) {
                pieces.push_back(text_up_to(*next));
                ++i;
                const auto* tagged = std::get_if<std::shared_ptr<Config::Tag>>(&elements[i]);
                pieces.push_back(tagged ? tag(**tagged, {}, behind(i)) : constant(behind(i).text));
            } else {
                pieces.push_back(piece(elements[i], behind(i)));
            }
        }
        return m_texts.sequence(pieces);
    }
    Piece of(const Config::Union& node, const Follow& follow) {
        if (node.elements.empty()) throw GrammarError("Union without elements");
        std::vector<Piece> pieces;
        for (const Node& element : node.elements) pieces.push_back(piece(element, follow));
        return m_texts.alternatives(pieces);
    }
    Piece of(const Config::Tag& node, const Follow& follow) {
        return tag(node, node.begin, follow);
    }
    Piece of(const Config::TriggeredTags& node, const Follow& follow) {
        if (node.tags.empty() || node.triggers.empty())
            throw GrammarError("TriggeredTags needs at least one tag and one trigger");
        const Follow inside{Follow::Kind::OTHER};
        const Piece end = constant(follow.text);
        std::vector<Piece> pieces;
        if (node.at_least_one) {
            std::vector<Piece> first;
            for (const Config::Tag& each : node.tags) {
                trigger_of(each, node.triggers);
                first.push_back(tag(each, each.begin, inside));
            }
            pieces.push_back(m_texts.alternatives(first));
            if (node.stop_after_first) return m_texts.sequence({pieces[0], end});
        }
        if (follow.kind == Follow::Kind::OTHER)
            throw GrammarError(
                "TriggeredTags must be the last part: the text behind them would be part of them");
        // Apart, since a terminal that ends with free text would take the triggers.
        const Piece free_text = m_texts.apart(of(Config::AnyText{}, follow));
        const Piece tags = m_texts.apart(triggered(node, inside));
        if (node.stop_after_first) {
            pieces.push_back(m_texts.alternatives({m_texts.sequence({tags, end}), free_text}));
        } else {
            pieces.push_back(m_texts.optional(m_texts.repeated(tags, constant(""))));
            pieces.push_back(free_text);
        }
        return m_texts.sequence(pieces);
    }

    template <class T>
    Piece of(const std::shared_ptr<T>& node, const Follow& follow) {
        check_argument(node != nullptr, "a structural tag is missing");
        return of(*node, follow);
    }

    Piece piece(const Node& node, const Follow& follow) {
        if (++m_depth > m_limits.nesting)
            throw GrammarError(concat("a grammar whose parts lie more than ", m_limits.nesting,
                                      " deep in each other"));
        const Piece result = std::visit([&](const auto& each) { return of(each, follow); }, node);
        --m_depth;
        return result;
    }

    /// With `begin` instead of the tag's own.
    Piece tag(const Config::Tag& node, const std::string& begin, const Follow& follow) {
        if (node.end.empty())
            return m_texts.sequence({constant(begin), piece(node.content, follow)});
        const Follow end{Follow::Kind::CONSTANT, node.end};
        return m_texts.sequence({constant(begin), piece(node.content, end), constant(follow.text)});
    }

    Piece constant(const std::string& text) {
        std::vector<Piece> pieces;
        for (const ConstantPart& part : split_at_special_tokens(text, m_special_tokens)) {
            if (part.token >= 0)
                pieces.push_back(Piece::rule(concat("<[", part.token, "]>")));
            else if (!part.text.empty())
                pieces.push_back(regular_piece(lark_string(part.text), true));
        }
        return m_texts.sequence(pieces);
    }

    /// Free text up to the first `text`, and this.
    Piece text_up_to(const std::string& text) {
        const auto parts = split_at_special_tokens(text, m_special_tokens);
        // A special token is no text, so it ends what is before it.
        if (parts.front().token >= 0)
            return m_texts.sequence({regular_piece(any_text), constant(text)});
        Piece result = Piece::rule(
            m_lark.add_rule(any_text + (' ' + lark_string(parts.front().text)), "[lazy]"));
        if (parts.size() > 1)
            result = m_texts.sequence({result, constant(text.substr(parts.front().text.size()))});
        return result;
    }

    Piece triggered(const Config::TriggeredTags& node, const Follow& follow) {
        std::vector<Piece> pieces;
        for (const std::string& trigger : node.triggers) {
            std::vector<Piece> tags;
            for (const Config::Tag& each : node.tags)
                if (&trigger_of(each, node.triggers) == &trigger)
                    tags.push_back(tag(each, each.begin.substr(trigger.size()), follow));
            if (tags.empty())
                throw GrammarError(concat("no tag begins with the trigger '", trigger, "'"));
            pieces.push_back(m_texts.sequence({text_up_to(trigger), m_texts.alternatives(tags)}));
        }
        return m_texts.alternatives(pieces);
    }

    const SpecialTokens& m_special_tokens;
    const GrammarLimits& m_limits;
    const bool m_has_open_objects;
    LarkWriter m_lark;
    NetworkWriter m_texts{m_lark};
    size_t m_depth = 0;
    std::vector<std::string> m_schemas;
};

}  // namespace

std::vector<ConstantPart> split_at_special_tokens(const std::string& text,
                                                  const SpecialTokens& special_tokens) {
    std::vector<ConstantPart> parts{{}};
    for (size_t i = 0; i < text.size();) {
        const std::pair<std::string, int64_t>* longest = nullptr;
        for (const auto& special : special_tokens) {
            const std::string& name = special.first;
            if (name.empty() || text.compare(i, name.size(), name) != 0) continue;
            if (!longest || name.size() > longest->first.size()) longest = &special;
        }
        if (longest) {
            if (parts.back().text.empty()) parts.pop_back();
            parts.push_back({longest->first, longest->second});
            i += longest->first.size();
        } else {
            if (parts.back().token >= 0) parts.push_back({});
            parts.back().text += text[i++];
        }
    }
    return parts;
}

GrammarSource structural_tag_to_lark(const Node& node, const SpecialTokens& special_tokens,
                                     const GrammarLimits& limits, bool has_open_objects) {
    return TagTranslator(special_tokens, limits, has_open_objects).translate(node);
}

}  // namespace pagewheel
