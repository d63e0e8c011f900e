// Arguments as Python's: a=1, b='x'.
#include "base/check.hpp"
#include "parsing/arguments/argument_grammars.hpp"
#include "parsing/arguments/literal_grammar.hpp"

namespace pagewheel {
namespace {

/// A character of a text in Python, and the same with the other quote.
constexpr const char* python_escape =
    R"re(\\(?:["'\\nrtbfav]|x[0-9a-fA-F]{2}|u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))re";

std::string python_text(char quote, const std::string& count) {
    return concat(quote, "(?:[^", quote, R"(\\\x00-\x1f\x7f]|)", python_escape, ')', count, quote);
}

std::string python_texts(const std::string& count) {
    return concat("(?:", python_text('"', count), '|', python_text('\'', count), ')');
}

/// Any value in Python; `rule` is value or dict.
std::string python_lark(const std::string& rule) {
    return concat("start: ", rule, R"(
value: TEXT | NUMBER | "True" | "False" | "None" | list | dict
list: "[" (value (", " value)*)? "]"
dict: "{" (TEXT ": " value (", " TEXT ": " value)*)? "}"
NUMBER: /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/
TEXT: /)",
                  python_texts("*"), "/\n");
}

/// A text in Python, with either quote.
GrammarNode python_literal(const std::string& text) {
    const std::string json = nlohmann::ordered_json(text).dump();
    std::string single = "'";
    for (size_t i = 1; i + 1 < json.size(); ++i) {
        if (json[i] == '\\' && json[i + 1] == '"') continue;
        if (json[i] == '\\') single += json[i++];
        if (json[i] == '\'') single += '\\';
        single += json[i];
    }
    return StructuredOutputConfig::Choice{{json, single + "'"}};
}

class PythonGrammar final : public LiteralGrammar {
public:
    explicit PythonGrammar(ArgumentSchema& schema) : LiteralGrammar(schema, ", ") {}

    GrammarNode arguments() {
        const auto write = [&](const ArgumentSchema::Property& each) {
            m_schema.check_word(each.name, each.place);
            return sequence_node({constant_node(each.name + "="), value(each.schema, each.place)});
        };
        return m_schema.members(m_schema.root(), "", m_separator, write);
    }

private:
    GrammarNode key(const std::string& name, const std::string& /*place*/) const override {
        return sequence_node({python_literal(name), constant_node(": ")});
    }

    GrammarNode text(const Json& schema, const std::string& place) override {
        if (schema.contains("pattern") || schema.contains("format"))
            return m_schema.json_value(schema);
        m_schema.allow(schema, place, {"type", "minLength", "maxLength"});
        std::string count = "*";
        if (schema.contains("minLength") || schema.contains("maxLength")) {
            const size_t least = m_schema.count_of(schema, "minLength", 0, place);
            const std::string most = schema.contains("maxLength")
                                         ? concat(m_schema.count_of(schema, "maxLength", 0, place))
                                         : "";
            count = concat('{', least, ',', most, '}');
        }
        return StructuredOutputConfig::Regex{python_texts(count)};
    }

    GrammarNode constant(const Json& value, const std::string& /*place*/) const override {
        if (value.is_string()) return python_literal(value);
        if (value.is_null()) return constant_node("None");
        if (value.is_boolean()) return constant_node(value ? "True" : "False");
        return constant_node(value.dump());
    }

    GrammarNode any_value(const std::string& /*place*/) const override {
        return StructuredOutputConfig::Lark{python_lark("value")};
    }

    GrammarNode any_object(const std::string& /*place*/) const override {
        return StructuredOutputConfig::Lark{python_lark("dict")};
    }
};

}  // namespace

GrammarNode python_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& /*notation*/) {
    return PythonGrammar(schema).arguments();
}

}  // namespace pagewheel
