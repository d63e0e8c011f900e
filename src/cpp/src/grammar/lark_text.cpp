#include "grammar/lark_text.hpp"

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {

std::string lark_string(const std::string& text) try {
    std::string result = nlohmann::json(text).dump();
    for (size_t at = result.find('\x7f'); at != std::string::npos; at = result.find('\x7f', at))
        result.replace(at, 1, "\\u007f");  // which JSON allows as it is, and Lark does not
    return result;
} catch (const nlohmann::json::exception&) {
    throw GrammarError("a text that is not UTF-8");
}

std::string lark_regex(const std::string& regex) {
    size_t begin = 0, end = regex.size();
    if (end > 0 && regex[0] == '^') begin = 1;
    if (end > begin && regex[end - 1] == '$') {
        size_t backslashes = 0;
        while (end - 1 - backslashes > begin && regex[end - 2 - backslashes] == '\\') ++backslashes;
        if (backslashes % 2 == 0) --end;
    }
    if (begin == end) return "\"\"";  // `//` would be a comment
    std::string result = "/";
    for (size_t i = begin; i < end; ++i) {
        const char c = regex[i];
        if (c == '\\') {
            if (i + 1 == end)
                throw GrammarError(concat("regex '", regex, "' ends with a backslash"));
            if (regex[i + 1] == '\n')
                throw GrammarError(
                    concat("regex '", regex, "' has a line break behind a backslash; write \\n"));
            result += c;
            result += regex[++i];
        } else if (c == '/') {
            result += "\\/";
        } else {
            result += c;
        }
    }
    return result + '/';
}

std::string LarkWriter::reserve_rule() {
    return "r" + std::to_string(m_count++);
}

void LarkWriter::set_rule(const std::string& name, const std::string& body) {
    m_text += name + ": " + body + '\n';
}

std::string LarkWriter::add_rule(const std::string& body, const std::string& attributes) {
    return add("r", attributes + ": " + body + '\n');
}

std::string LarkWriter::add_terminal(const std::string& body) {
    return add("T", ": " + body + '\n');
}

std::string LarkWriter::add(const char* kind, const std::string& definition) {
    std::string& name = m_names[kind + definition];
    if (name.empty()) {
        name = kind + std::to_string(m_count++);
        m_text += name + definition;
    }
    return name;
}

std::string LarkWriter::finish(const std::string& start) const {
    return "start: " + start + '\n' + m_text;
}

}  // namespace pagewheel
