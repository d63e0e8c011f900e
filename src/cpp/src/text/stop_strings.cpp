#include "text/stop_strings.hpp"

#include <algorithm>
#include <utility>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

StopStrings::StopStrings(const std::set<std::string>& strings, bool include_in_output,
                         size_t min_tokens)
    : m_automaton(strings.empty() ? nullptr : std::make_shared<const TextAutomaton>(strings)),
      m_include(include_in_output),
      m_early_tokens(min_tokens) {}

StopStrings::StopStrings(const GenerationConfig& config, const StopStrings* like)
    : StopStrings(like ? std::set<std::string>() : config.stop_strings,
                  config.include_stop_str_in_output, config.min_tokens) {
    if (like) m_automaton = like->m_automaton;
}

void StopStrings::begin_token() {
    m_is_early = m_early_tokens > 0;
    if (m_is_early) --m_early_tokens;
}

std::string StopStrings::feed(const std::string& text) {
    if (m_matched) return {};
    return empty() ? text : pass(text, /*is_hidden=*/false);
}

std::string StopStrings::feed_hidden(const std::string& text) {
    if (m_matched || empty() || text.empty()) return {};
    m_hidden.push_back({m_mixed.size(), text.size()});
    return pass(text, /*is_hidden=*/true);
}

std::string StopStrings::pass(const std::string& text, bool is_hidden) {
    Match match, mixed;
    for (const char byte : text) {
        m_mixed += byte;
        m_after_mixed = m_automaton->next(m_after_mixed, byte);
        keep_first(mixed, m_after_mixed, m_mixed.size());
        if (is_hidden) continue;
        m_held += byte;
        m_shown = m_automaton->next(m_shown, byte);
        keep_first(match, m_shown, m_held.size());
    }
    std::string stop = match.size == 0 ? "" : m_held.substr(match.begin, match.size);
    if (mixed.size > 0) {
        const size_t begin = m_held.size() - count_shown(mixed.begin);
        if (begin < match.begin) {
            match.begin = begin;
            stop = m_mixed.substr(mixed.begin, mixed.size);
        }
    }
    m_matched = match.begin != std::string::npos;
    if (m_matched) {
        m_match = std::move(stop);
        return std::exchange(m_held, {}).substr(0, match.begin) + (m_include ? m_match : "");
    }
    forget_mixed(m_automaton->num_begun(m_after_mixed));
    const size_t num_held = std::max(m_automaton->num_begun(m_shown), count_shown(0));
    std::string passed = m_held.substr(0, m_held.size() - num_held);
    m_held.erase(0, passed.size());
    return passed;
}

std::string StopStrings::flush() {
    forget_mixed(0);
    m_shown = m_after_mixed = TextAutomaton::start;
    return std::exchange(m_held, {});
}

void StopStrings::keep_first(Match& first, TextAutomaton::State state, size_t end) const {
    const size_t size = m_automaton->longest_match(state);
    if (size == 0 || m_is_early || end - size > first.begin) return;
    first = {end - size, size};
}

size_t StopStrings::count_shown(size_t begin) const {
    size_t count = m_mixed.size() - begin;
    for (const Hidden& hidden : m_hidden)
        count -= hidden.size - std::min(hidden.size, begin - std::min(begin, hidden.begin));
    return count;
}

void StopStrings::forget_mixed(size_t num_kept) {
    const size_t gone = m_mixed.size() - num_kept;
    m_mixed.erase(0, gone);
    size_t num_gone = 0;
    for (Hidden& hidden : m_hidden) {
        const size_t cut = std::min(hidden.size, gone - std::min(gone, hidden.begin));
        hidden = {hidden.begin - std::min(gone, hidden.begin), hidden.size - cut};
        num_gone += hidden.size == 0;
    }
    m_hidden.erase(m_hidden.begin(), m_hidden.begin() + std::ptrdiff_t(num_gone));
}

}  // namespace pagewheel
