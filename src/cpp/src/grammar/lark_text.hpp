// Pieces of Lark's syntax.
#pragma once

#include <string>

namespace pagewheel {

/// A text as a string literal.
std::string lark_string(const std::string& text);
/// A regular expression as a literal. Throws GrammarError for one that Lark cannot hold.
std::string lark_regex(const std::string& regex);

/// The rules and terminals of a grammar that is being written.
class LarkWriter {
public:
    /// Name of a new rule with this body. `attributes` is "[lazy]" or empty.
    std::string add_rule(const std::string& body, const std::string& attributes = {});
    /// Name of a new terminal: one regular expression, of which the text takes as much as it can.
    std::string add_terminal(const std::string& body);
    /// A name for a rule that set_rule() defines later.
    std::string reserve_rule();
    void set_rule(const std::string& name, const std::string& body);

    std::string finish(const std::string& start) const;

private:
    std::string m_text;
    size_t m_count = 0;
};

}  // namespace pagewheel
