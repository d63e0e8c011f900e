#include "runtime/drafting.hpp"

#include "base/check.hpp"

namespace pagewheel {

void Drafting::propose(Requests& requests) {
    for (const auto& request : requests.all()) {
        if (request->beams || request->is_over()) continue;
        try {
            for (const auto& sequence : request->sequences)
                if (sequence->stage == Sequence::Stage::DECODING && !sequence->pending_grammar)
                    propose(*sequence);
        } catch (const std::exception& error) {
            requests.end(*request, {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                                    Error(concat("the drafter failed: ", error.what()),
                                          ErrorCode::drafter_failed)});
        }
    }
}

void Drafting::propose(SequenceState& sequence) {
    // The model gives one token more than it confirms.
    const size_t room = sequence.request->max_tokens - sequence.tokens.size();
    size_t most = room > 0 ? room - 1 : 0;
    if (m_eviction) most = m_eviction->most_drafts(sequence, most);
    if (most == 0) return;
    m_drafts.clear();
    m_drafter->propose(sequence.tokens, most, m_drafts);
    for (int64_t token : m_drafts)
        check_argument(m_drafts.size() <= most && token >= 0 && size_t(token) < m_vocabulary,
                       "the drafter proposed ", m_drafts.size(), " tokens, one of them ", token,
                       "; allowed: up to ", most, " in [0, ", m_vocabulary, ")");
    if (m_drafts.empty()) return;
    sequence.tokens.insert(sequence.tokens.end(), m_drafts.begin(), m_drafts.end());
    sequence.num_drafted = m_drafts.size();
    m_drafted.push_back(&sequence);
}

void Drafting::clear_drafts() {
    for (Sequence* sequence : m_drafted) sequence->drop_drafts();
    m_drafted.clear();
}

}  // namespace pagewheel
