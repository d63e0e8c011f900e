#include "text/word_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

/// `both` without the `begin` that it has; nothing where it has not, or nothing else.
Tokens behind(const Tokens& begin, const Tokens& both) {
    const bool has_it = !begin.empty() && both.size() > begin.size() &&
                        std::equal(begin.begin(), begin.end(), both.begin());
    return has_it ? Tokens(both.begin() + std::ptrdiff_t(begin.size()), both.end()) : Tokens();
}

}  // namespace

std::vector<Tokens> encode_inside(const Encode& encode, const std::vector<std::string>& texts) {
    // Behind a line break nothing is put before a text.
    std::vector<std::string> lines{"\n"};
    for (const std::string& text : texts) lines.push_back("\n" + text);
    const std::vector<Tokens> encoded = encode(lines);
    std::vector<Tokens> found;
    std::vector<size_t> missing;
    std::vector<std::string> plain;
    for (size_t i = 0; i < texts.size(); ++i) {
        found.push_back(behind(encoded.front(), encoded[i + 1]));
        if (!found.back().empty()) continue;
        missing.push_back(i);
        plain.push_back(texts[i]);
    }
    if (plain.empty()) return found;
    std::vector<Tokens> others = encode(plain);
    for (size_t i = 0; i < missing.size(); ++i) found[missing[i]] = std::move(others[i]);
    return found;
}

std::vector<Tokens> word_tokens(const Encode& encode, const std::vector<std::string>& words) {
    std::vector<std::string> texts = words;
    for (const std::string& word : words) texts.push_back(" " + word);
    std::vector<Tokens> found = encode_inside(encode, texts);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    if (!found.empty() && found.front().empty()) found.erase(found.begin());
    return found;
}

}  // namespace pagewheel
