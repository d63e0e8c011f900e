// Arguments as an object with texts in a quote Q of the family: {a:1,b:QxQ}.
#include "base/check.hpp"
#include "parsing/arguments/argument_grammars.hpp"
#include "parsing/arguments/literal_grammar.hpp"

namespace pagewheel {
namespace {

class QuotedGrammar final : public LiteralGrammar {
public:
    QuotedGrammar(ArgumentSchema& schema, const std::string& quote)
        : LiteralGrammar(schema, ","), m_quote(quote) {}

private:
    GrammarNode key(const std::string& name, const std::string& place) const override {
        m_schema.check_word(name, place);
        return constant_node(name + ":");
    }

    GrammarNode text(const Json& schema, const std::string& place) override {
        m_schema.allow(schema, place, {"type"});
        return tag_node(m_quote, StructuredOutputConfig::AnyText{}, m_quote);
    }

    GrammarNode constant(const Json& value, const std::string& place) const override {
        if (!value.is_string()) return constant_node(value.dump());
        const std::string text = value;
        if (text.find(m_quote) != std::string::npos)
            m_schema.refuse(concat("the text '", text, "'"), place);
        return constant_node(m_quote + text + m_quote);
    }

    GrammarNode any_value(const std::string& place) const override {
        m_schema.refuse("a value of any type", place);
    }

    GrammarNode any_object(const std::string& place) const override {
        m_schema.refuse("an object of any properties", place);
    }

    const std::string& m_quote;
};

}  // namespace

GrammarNode quoted_argument_grammar(ArgumentSchema& schema, const ArgumentNotation& notation) {
    return QuotedGrammar(schema, notation.quote).object(schema.root(), "");
}

}  // namespace pagewheel
