// Pieces of Lark's syntax.
#pragma once

#include <string>
#include <unordered_map>

namespace pagewheel {

/// A text as a string literal.
std::string lark_string(const std::string& text);
/// A regular expression as a literal. Throws GrammarError for one that Lark cannot hold.
std::string lark_regex(const std::string& regex);

/// The rules and terminals of a grammar that is being written.
class LarkWriter {
public:
    // What has the same body has the same name.

    /// Name of the rule with this body. `attributes` is "[lazy]" or empty.
    std::string add_rule(const std::string& body, const std::string& attributes = {});
    /// Name of the terminal with this body: one regular expression, of which the text takes as much
    /// as it can.
    std::string add_terminal(const std::string& body);
    /// A name for a rule that set_rule() defines later.
    std::string reserve_rule();
    void set_rule(const std::string& name, const std::string& body);

    std::string finish(const std::string& start) const;

private:
    std::string add(const char* kind, const std::string& definition);

    std::string m_text;
    std::unordered_map<std::string, std::string> m_names;  ///< by definition
    size_t m_count = 0;
};

}  // namespace pagewheel
