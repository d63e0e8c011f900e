#include "runtime/token_map.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace pagewheel {
namespace {

// Longer tokens are found only where all of the bytes are one: the time to make a map is bounded.
constexpr size_t longest_part = 32;

}  // namespace

TokenMap::TokenMap(const std::vector<std::string>& from, const std::vector<std::string>& to) {
    std::unordered_map<std::string_view, int64_t> ids;
    for (size_t id = 0; id < to.size(); ++id)
        if (!to[id].empty()) ids.emplace(to[id], int64_t(id));
    m_ends.reserve(from.size());
    for (const std::string& bytes : from) {
        std::string_view rest = bytes;
        for (auto found = ids.find(rest); !rest.empty(); found = ids.end()) {
            for (size_t length = std::min(rest.size(), longest_part);
                 found == ids.end() && length > 0; --length)
                found = ids.find(rest.substr(0, length));
            if (found != ids.end()) m_tokens.push_back(found->second);
            // A byte that no token begins with is left out.
            rest.remove_prefix(found != ids.end() ? found->first.size() : 1);
        }
        m_ends.push_back(m_tokens.size());
    }
}

TokenMap::Range TokenMap::range_of(int64_t token) const {
    const auto index = size_t(token);
    if (index >= m_ends.size()) return {0, 0};
    return {index > 0 ? m_ends[index - 1] : 0, m_ends[index]};
}

int64_t TokenMap::first_of(int64_t token) const {
    const Range range = range_of(token);
    return range.begin < range.end ? m_tokens[range.begin] : -1;
}

void TokenMap::append(int64_t token, std::vector<int64_t>& tokens) const {
    const Range range = range_of(token);
    const auto begin = m_tokens.begin();
    tokens.insert(tokens.end(), begin + ptrdiff_t(range.begin), begin + ptrdiff_t(range.end));
    if (range.begin == range.end) tokens.push_back(0);
}

}  // namespace pagewheel
