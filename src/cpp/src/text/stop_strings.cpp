#include "text/stop_strings.hpp"

#include <algorithm>
#include <utility>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

void StopStrings::Mixed::append(const std::string& more, bool is_hidden) {
    text += more;
    hidden.insert(hidden.end(), more.size(), is_hidden);
}

void StopStrings::Mixed::erase_before(size_t begin) {
    text.erase(0, begin);
    hidden.erase(hidden.begin(), hidden.begin() + ptrdiff_t(begin));
    num_early -= std::min(num_early, begin);
}

size_t StopStrings::Mixed::count_shown(size_t begin) const {
    return size_t(std::count(hidden.begin() + ptrdiff_t(begin), hidden.end(), false));
}

StopStrings::StopStrings(std::set<std::string> strings, bool include_in_output, size_t min_tokens)
    : m_strings(std::move(strings)), m_include(include_in_output), m_early_tokens(min_tokens) {}

StopStrings::StopStrings(const GenerationConfig& config)
    : StopStrings(config.stop_strings, config.include_stop_str_in_output, config.min_tokens) {}

void StopStrings::begin_token() {
    m_is_early = m_early_tokens > 0;
    if (m_is_early) --m_early_tokens;
}

std::string StopStrings::feed(const std::string& text) {
    if (m_matched) return {};
    m_held += text;
    m_since_hidden += text.size();
    if (!m_mixed.text.empty()) m_mixed.append(text, false);
    return pass();
}

std::string StopStrings::feed_hidden(const std::string& text) {
    if (m_matched || m_strings.empty()) return {};
    if (m_mixed.text.empty()) {
        const size_t begin = m_held.size() - m_since_hidden;
        m_mixed.append(m_held.substr(begin), false);
        m_mixed.num_early = m_num_early - std::min(m_num_early, begin);
    }
    m_mixed.append(text, true);
    m_since_hidden = 0;
    return pass();
}

std::string StopStrings::pass() {
    if (m_is_early) {
        m_num_early = m_held.size();
        m_mixed.num_early = m_mixed.text.size();
    }
    Match match = find_first(m_held, m_num_early);
    size_t held = undecided_bytes(m_held);
    if (!m_mixed.text.empty()) {
        Match mixed = find_first(m_mixed.text, m_mixed.num_early);
        if (mixed.begin != std::string::npos) {
            mixed.begin = m_held.size() - m_mixed.count_shown(mixed.begin);
            if (mixed.begin < match.begin) match = std::move(mixed);
        }
        m_mixed.erase_before(m_mixed.text.size() - undecided_bytes(m_mixed.text));
        held = std::max(held, m_mixed.count_shown(0));
    }
    m_matched = match.begin != std::string::npos;
    if (m_matched)
        return std::exchange(m_held, {}).substr(0, match.begin) + (m_include ? match.string : "");
    // What has no hidden part is in the held text, too.
    if (m_mixed.count_shown(0) == m_mixed.text.size()) m_mixed = {};
    std::string passed = m_held.substr(0, m_held.size() - held);
    m_held.erase(0, passed.size());
    m_num_early -= std::min(m_num_early, passed.size());
    m_since_hidden = std::min(m_since_hidden, held);
    return passed;
}

std::string StopStrings::flush() {
    m_since_hidden = 0;
    m_num_early = 0;
    m_mixed = {};
    return std::exchange(m_held, {});
}

StopStrings::Match StopStrings::find_first(const std::string& text, size_t num_early) const {
    Match match;
    for (const std::string& stop : m_strings) {
        const size_t found = text.find(stop, num_early - std::min(num_early, stop.size() - 1));
        if (found == std::string::npos || found > match.begin) continue;
        if (found < match.begin || stop.size() > match.string.size()) match = {found, stop};
    }
    return match;
}

size_t StopStrings::undecided_bytes(const std::string& text) const {
    size_t undecided = 0;
    for (const std::string& stop : m_strings) {
        const size_t longest = std::min(stop.size() - 1, text.size());
        for (size_t length = longest; length > undecided; --length)
            if (text.compare(text.size() - length, length, stop, 0, length) == 0)
                undecided = length;
    }
    return undecided;
}

}  // namespace pagewheel
