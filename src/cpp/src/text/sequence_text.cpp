#include "text/sequence_text.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {

SequenceText::SequenceText(GeneratedText::Decoders decoders, StopStrings stop_strings)
    : m_decoders(decoders),
      m_generated(std::move(decoders), stop_strings),
      m_has_stop_strings(!stop_strings.empty()) {}

void SequenceText::append(const std::vector<int64_t>& tokens) {
    if (m_ended) return;
    for (int64_t token : tokens) {  // decoders may throw: what was decoded before them counts
        const size_t begin = m_has_stop_strings ? m_text.size() + m_generated.num_held() : 0;
        m_text += m_generated.append(token);
        if (m_has_stop_strings)
            m_begins.push_back(std::max(begin, m_begins.empty() ? 0 : m_begins.back()));
        if (++m_num_decoded <= m_num_skipped) m_num_taken = m_text.size();
    }
}

void SequenceText::skip(size_t num_tokens) {
    m_num_skipped = num_tokens;
    if (m_num_decoded <= num_tokens) m_num_taken = m_text.size();
}

void SequenceText::end_with(const std::vector<int64_t>& tokens) {
    if (m_num_decoded > 0 || m_num_skipped > 0 || m_has_stop_strings || m_ended) {
        append(tokens);
        if (std::exchange(m_ended, true)) return;
        m_is_cut = m_generated.stopped();
        m_text += m_generated.flush();
        return;
    }
    m_text = m_decoders.shown(tokens);
    m_num_decoded = tokens.size();
    m_ended = true;
}

size_t SequenceText::num_tokens() const {
    if (!m_has_stop_strings || (m_ended && !m_is_cut)) return m_num_decoded;
    return size_t(std::lower_bound(m_begins.begin(), m_begins.end(), m_text.size()) -
                  m_begins.begin());
}

std::string SequenceText::take() {
    return m_text.substr(std::exchange(m_num_taken, m_text.size()));
}

}  // namespace pagewheel
