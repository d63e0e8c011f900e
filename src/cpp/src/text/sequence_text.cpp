#include "text/sequence_text.hpp"

#include <utility>

namespace pagewheel {

SequenceText::SequenceText(GeneratedText::Decoders decoders, StopStrings stop_strings)
    : m_decoders(decoders),
      m_generated(std::move(decoders), stop_strings),
      m_has_stop_strings(!stop_strings.empty()) {}

void SequenceText::append(const std::vector<int64_t>& tokens) {
    if (m_ended) return;
    for (int64_t token : tokens) {  // decoders may throw: what was decoded before them counts
        m_text += m_generated.append(token);
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
        if (!std::exchange(m_ended, true)) m_text += m_generated.flush();
        return;
    }
    m_text = m_decoders.shown(tokens);
    m_num_decoded = tokens.size();
    m_ended = true;
}

std::string SequenceText::take() {
    return m_text.substr(std::exchange(m_num_taken, m_text.size()));
}

}  // namespace pagewheel
