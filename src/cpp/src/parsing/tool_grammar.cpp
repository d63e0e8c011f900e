#include "pagewheel/tool_grammar.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.hpp"
#include "grammar/schema_numbers.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/argument_grammar.hpp"
#include "parsing/family.hpp"

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
        return (c < 0x80 && std::isalnum(c) != 0) || c == '_' || c == '-' || c == '.';
    };
    const bool begins_well =
        !text.empty() && !(in_python && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 ||
                                         text[0] == '-' || text[0] == '.'));
    return begins_well && std::all_of(text.begin(), text.end(), fits);
}

std::vector<Tool> parse_tools(const std::string& tools_json, const Family& family) {
    const ordered_json tools = parse_ordered_json(tools_json, "tools");
    check_argument(tools.is_array(), "tools must be a JSON array, got ", tools_json);
    check_parsed_numbers(tools_json);
    const auto uses_python = [](const CallNotation& calls) {
        return calls.arguments.kind == ArgumentNotation::Kind::PYTHON;
    };
    const auto& sections = family.notations.sections;
    const bool in_python = std::any_of(sections.begin(), sections.end(), uses_python);
    std::vector<Tool> parsed;
    std::set<std::string> names;
    for (const ordered_json& tool : tools) {
        const ordered_json& function =
            tool.is_object() && tool.contains("function") ? tool["function"] : tool;
        check_argument(
            function.is_object() && function.contains("name") && function["name"].is_string(),
            "a tool must be an object with the name of a function, got ", tool.dump());
        const std::string name = function["name"];
        check_argument(is_name(name, in_python), "tools: family ", family.name,
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

std::string escaped(const std::string& text) {
    std::string regex;
    for (const char c : text) {
        if (std::string_view("\\.+*?()|[]{}^$/").find(c) != std::string_view::npos) regex += '\\';
        regex += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return regex;
}

/// Free text in which no call begins.
GrammarNode text_without_calls(const CallNotations& notations) {
    std::string marks = notations.not_in_text;
    for (const CallNotation& calls : notations.sections)
        if (!calls.trigger.empty()) marks += (marks.empty() ? "" : "|") + escaped(calls.trigger);
    if (marks.empty()) return Config::AnyText{};
    return Config::Lark{concat("start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)(", marks, ")(?s:.*)/\n")};
}

/// What a family's calls of some tools look like.
class CallGrammar {
public:
    CallGrammar(const Family& family, const std::vector<Tool>& tools, bool is_parallel)
        : m_family(family), m_tools(tools), m_is_parallel(is_parallel) {}

    GrammarNode required() const {
        std::vector<GrammarNode> ways;
        for (const CallNotation& calls : notations().sections) {
            const GrammarNode one = sequence_node({constant_node(calls.trigger), section(calls)});
            const bool repeats = calls.may_repeat && m_is_parallel;
            ways.push_back(repeats ? list_node(one, calls.separator) : one);
        }
        const GrammarNode calls = either_node(ways);
        return notations().has_channels ? after_messages({"analysis"}, calls) : calls;
    }

    GrammarNode automatic() const {
        if (notations().has_channels)
            return after_messages({"analysis", "commentary"},
                                  either_node({required_now(), answer()}));
        if (!notations().not_in_text.empty())
            return either_node({required(), text_without_calls(notations())});
        auto tags = std::make_shared<Config::TriggeredTags>();
        tags->stop_after_first = !m_is_parallel;
        for (const CallNotation& calls : notations().sections) {
            tags->tags.push_back({calls.trigger, section(calls), ""});
            auto& triggers = tags->triggers;
            if (std::find(triggers.begin(), triggers.end(), calls.trigger) == triggers.end())
                triggers.push_back(calls.trigger);
        }
        return tags;
    }

    GrammarNode none() const {
        if (notations().has_channels) return after_messages({"analysis", "commentary"}, answer());
        return text_without_calls(notations());
    }

private:
    const CallNotations& notations() const { return m_family.notations; }

    /// What follows the trigger. What is before a call is one constant with its name, so that no
    /// shorter piece could be taken for free text.
    GrammarNode section(const CallNotation& calls) const {
        std::vector<GrammarNode> nodes{one_call(calls, calls.open)};
        if (!calls.has_one_call && m_is_parallel)
            nodes.push_back(any_number_node(one_call(calls, calls.separator)));
        nodes.push_back(constant_node(calls.close));
        return sequence_node(nodes);
    }

    GrammarNode one_call(const CallNotation& calls, const std::string& before) const {
        std::vector<GrammarNode> ways;
        for (const Tool& tool : m_tools)
            ways.push_back(sequence_node(
                {constant_node(before + calls.before_name + tool.name + calls.after_name),
                 argument_grammar(calls.arguments, tool.parameters,
                                  concat("family ", m_family.name, ", tool '", tool.name, "'")),
                 constant_node(calls.after_arguments)}));
        return either_node(ways);
    }

    GrammarNode required_now() const {
        std::vector<GrammarNode> ways;
        for (const CallNotation& calls : notations().sections) ways.push_back(section(calls));
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

    const Family& m_family;
    const std::vector<Tool>& m_tools;
    const bool m_is_parallel;
};

}  // namespace

StructuredOutputConfig tool_call_grammar(const std::string& family_name,
                                         const std::string& tools_json,
                                         const ToolGrammarOptions& options) {
    const Family& family = find_family(family_name);
    std::vector<Tool> tools = parse_tools(tools_json, family);
    const std::string& choice = options.tool_choice;
    const bool is_none = choice == "none" || (choice == "auto" && tools.empty());
    if (!is_none) tools = chosen_tools(std::move(tools), choice);
    check_argument(is_none || !family.notations.sections.empty(), "family ", family.name,
                   " has no tool calls");
    const bool is_named = choice != "auto" && choice != "required";
    const CallGrammar calls(family, tools, options.parallel_tool_calls && !is_named);
    StructuredOutputConfig config;
    config.compound_grammar =
        is_none ? calls.none() : (choice == "auto" ? calls.automatic() : calls.required());
    return config;
}

}  // namespace pagewheel
