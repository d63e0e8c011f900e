#include "pagewheel/tool_grammar.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.hpp"
#include "grammar/json_schema.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/argument_grammar.hpp"
#include "parsing/bytes.hpp"
#include "parsing/message_format.hpp"

namespace pagewheel {
namespace {

using nlohmann::ordered_json;
using Config = StructuredOutputConfig;

struct Tool {
    std::string name;
    ordered_json parameters;  ///< JSON schema
};

bool is_name(const std::string& text, bool in_python) {
    const auto fits = [](unsigned char c) {
        return (c < 0x80 && is_name_byte(char(c))) || c == '-' || c == '.';
    };
    return !text.empty() && (!in_python || begins_name(text[0])) &&
           std::all_of(text.begin(), text.end(), fits);
}

std::vector<Tool> parse_tools(const std::string& tools_json, const MessageFormat& format) {
    const ordered_json tools = parse_ordered_json(tools_json, "tools");
    check_argument(tools.is_array(), "tools must be a JSON array, got ", tools_json);
    check_parsed_numbers(tools_json);
    const auto uses_python = [](const CallFormat& calls) {
        return calls.arguments.kind == ArgumentFormat::Kind::PYTHON;
    };
    const bool in_python = std::any_of(format.calls.begin(), format.calls.end(), uses_python);
    std::vector<Tool> parsed;
    std::set<std::string> names;
    for (const ordered_json& tool : tools) {
        const ordered_json& function =
            tool.is_object() && tool.contains("function") ? tool["function"] : tool;
        check_argument(
            function.is_object() && function.contains("name") && function["name"].is_string(),
            "a tool must be an object with the name of a function, got ", tool.dump());
        const std::string name = function["name"];
        check_argument(is_name(name, in_python), "tools: family ", format.name,
                       " cannot call a function of the name '", name,
                       "'; allowed are ASCII letters, digits, _, - and .",
                       in_python ? ", first a letter or _" : "");
        check_argument(names.insert(name).second, "tools: two functions have the name '", name,
                       "'");
        parsed.push_back({name, function.value("parameters", ordered_json())});
    }
    return parsed;
}

/// Those that may be called.
std::vector<Tool> chosen_tools(std::vector<Tool> tools, const std::string& choice) {
    if (choice == "auto") return tools;
    if (choice == "required") {
        check_argument(!tools.empty(), "tool_choice is 'required', but there are no tools");
        return tools;
    }
    std::string names;
    for (const Tool& tool : tools) {
        if (tool.name == choice) return {tool};
        names += ", " + tool.name;
    }
    throw InvalidArgument(
        concat("tool_choice is '", choice, "'; allowed: none, auto, required", names));
}

const std::string& trigger_of(const CallFormat& calls) {
    return calls.trigger.empty() ? calls.marker : calls.trigger;
}

std::string escaped(const std::string& text) {
    std::string regex;
    for (const char c : text) {
        if (std::string_view("\\.+*?()|[]{}^$/").find(c) != std::string_view::npos) regex += '\\';
        regex += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return regex;
}

/// Free text in which no call begins.
GrammarNode text_without_calls(const MessageFormat& format) {
    std::string marks = format.not_in_text;
    for (const CallFormat& calls : format.calls)
        if (!trigger_of(calls).empty())
            marks += (marks.empty() ? "" : "|") + escaped(trigger_of(calls));
    if (marks.empty()) return Config::AnyText{};
    return Config::Lark{concat("start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)(", marks, ")(?s:.*)/\n")};
}

/// Of a call within its conversation.
constexpr const char* call_number = "0|[1-9][0-9]{0,3}";

/// What a family's calls of some tools look like.
class CallGrammar {
public:
    CallGrammar(const MessageFormat& format, const std::vector<Tool>& tools, bool is_parallel)
        : m_format(format), m_tools(tools), m_is_parallel(is_parallel) {}

    GrammarNode required() const {
        std::vector<GrammarNode> ways;
        for (const CallFormat& calls : m_format.calls) {
            const GrammarNode one =
                sequence_node({constant_node(trigger_of(calls)), section(calls)});
            const bool repeats = calls.may_repeat && m_is_parallel;
            ways.push_back(repeats ? list_node(one, calls.separator) : one);
        }
        const GrammarNode calls = either_node(ways);
        return m_format.has_channels ? after_messages({"analysis"}, calls) : calls;
    }

    GrammarNode automatic() const {
        if (m_format.has_channels)
            return after_messages({"analysis", "commentary"},
                                  either_node({required_now(), answer()}));
        if (!m_format.not_in_text.empty())
            return either_node({required(), text_without_calls(m_format)});
        auto tags = std::make_shared<Config::TriggeredTags>();
        tags->stop_after_first = !m_is_parallel;
        for (const CallFormat& calls : m_format.calls) {
            tags->tags.push_back({trigger_of(calls), section(calls), ""});
            auto& triggers = tags->triggers;
            if (std::find(triggers.begin(), triggers.end(), trigger_of(calls)) == triggers.end())
                triggers.push_back(trigger_of(calls));
        }
        return tags;
    }

    GrammarNode none() const {
        if (m_format.has_channels) return after_messages({"analysis", "commentary"}, answer());
        return text_without_calls(m_format);
    }

private:
    /// What follows the trigger. What is before a call is one constant with its name, so that no
    /// shorter piece could be taken for free text.
    GrammarNode section(const CallFormat& calls) const {
        std::vector<GrammarNode> nodes{one_call(calls, calls.open)};
        if (!calls.has_one_call && m_is_parallel)
            nodes.push_back(any_number_node(one_call(calls, calls.separator)));
        nodes.push_back(constant_node(calls.close));
        return sequence_node(nodes);
    }

    GrammarNode one_call(const CallFormat& calls, const std::string& before) const {
        std::vector<GrammarNode> ways;
        for (const Tool& tool : m_tools) {
            const std::string begin = before + calls.before_name + tool.name;
            const bool has_number = !calls.id_begin.empty();
            ways.push_back(sequence_node(
                {has_number
                     ? sequence_node({constant_node(begin + calls.before_id),
                                      Config::Regex{call_number}, constant_node(calls.after_name)})
                     : constant_node(begin + calls.after_name),
                 argument_grammar(calls.arguments, tool.parameters,
                                  concat("family ", m_format.name, ", tool '", tool.name, "'")),
                 constant_node(calls.after_arguments)}));
        }
        return either_node(ways);
    }

    GrammarNode required_now() const {
        std::vector<GrammarNode> ways;
        for (const CallFormat& calls : m_format.calls) ways.push_back(section(calls));
        return either_node(ways);
    }

    static GrammarNode answer() {
        return tag_node("<|channel|>final<|message|>", Config::AnyText{}, "");
    }

    /// Messages of these channels may come before the last one.
    static GrammarNode after_messages(const std::vector<std::string>& channels,
                                      const GrammarNode& last) {
        std::vector<GrammarNode> messages;
        for (const std::string& channel : channels)
            messages.push_back(tag_node("<|channel|>" + channel + "<|message|>", Config::AnyText{},
                                        "<|end|><|start|>assistant"));
        return sequence_node({any_number_node(either_node(messages)), last});
    }

    const MessageFormat& m_format;
    const std::vector<Tool>& m_tools;
    const bool m_is_parallel;
};

}  // namespace

StructuredOutputConfig tool_call_grammar(const std::string& family, const std::string& tools_json,
                                         const ToolGrammarOptions& options) {
    const MessageFormat& format = find_message_format(family);
    std::vector<Tool> tools = parse_tools(tools_json, format);
    const std::string& choice = options.tool_choice;
    const bool is_none = choice == "none" || (choice == "auto" && tools.empty());
    if (!is_none) tools = chosen_tools(std::move(tools), choice);
    check_argument(is_none || !format.calls.empty(), "family ", format.name, " has no tool calls");
    const bool is_named = choice != "auto" && choice != "required";
    const CallGrammar calls(format, tools, options.parallel_tool_calls && !is_named);
    StructuredOutputConfig config;
    config.compound_grammar =
        is_none ? calls.none() : (choice == "auto" ? calls.automatic() : calls.required());
    return config;
}

}  // namespace pagewheel
