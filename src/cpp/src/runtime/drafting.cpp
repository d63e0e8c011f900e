#include "runtime/drafting.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {
namespace {

// The longest draft whose length nobody asked for.
constexpr size_t most_automatic = 15;
// A smaller gain is within the error of the estimates.
constexpr double least_gain = 1.03;
constexpr float least_survival = 0.05f;
// The weights of drafts fall by this with each one after them, of a sequence and of all.
constexpr float sequence_decay = 0.9f, common_decay = 0.99f;
constexpr float first_rate = 0.5f, first_weight = 4;

}  // namespace

void Drafting::propose(Requests& requests) {
    m_proposals.clear();
    size_t num_sequences = 0, num_rows = 0;
    for (const auto& request : requests.all()) {
        if (request->config().is_beam_search() || request->is_over()) continue;
        try {
            for (const auto& sequence : request->sequences) {
                if (sequence->stage != Sequence::Stage::DECODING || sequence->pending_grammar)
                    continue;
                ++num_sequences;
                num_rows += sequence->num_uncached();
                if (m_limits.automatic || request->config().is_assisting_generation() ||
                    !request->prediction.empty())
                    propose(*sequence);
            }
        } catch (const std::exception& error) {
            requests.end(*request, {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                                    Error(concat("the drafter failed: ", error.what()),
                                          ErrorCode::drafter_failed)});
        }
    }
    if (m_proposals.empty()) return;
    choose_lengths(num_sequences, num_rows);
    for (const Proposal& proposal : m_proposals) {
        SequenceState& sequence = *proposal.sequence;
        if (proposal.length == 0 || sequence.request->is_over()) continue;
        const std::vector<Draft>& drafts = sequence.drafts->proposed;
        for (size_t i = 0; i < proposal.length; ++i) sequence.tokens.push_back(drafts[i].token);
        sequence.num_drafted = proposal.length;
        m_drafted.push_back(&sequence);
    }
}

void Drafting::propose(SequenceState& sequence) {
    if (!sequence.drafts) sequence.drafts = std::make_unique<DraftState>();
    settle(sequence);
    std::vector<Draft>& drafts = sequence.drafts->proposed;
    drafts.clear();
    sequence.drafts->proposed_at = sequence.tokens.size();
    // The model gives one token more than it confirms.
    const GenerationConfig& config = sequence.request->config();
    const size_t room = sequence.request->max_tokens - sequence.tokens.size();
    size_t most =
        std::min(config.num_assistant_tokens ? config.num_assistant_tokens : most_automatic,
                 room > 0 ? room - 1 : 0);
    if (m_eviction) most = m_eviction->most_drafts(sequence, most);
    if (most == 0) return;
    m_drafter->propose(sequence, most, drafts);
    for (const Draft& draft : drafts)
        check_argument(
            drafts.size() <= most && draft.token >= 0 && size_t(draft.token) < m_limits.vocabulary,
            "the drafter proposed ", drafts.size(), " tokens, one of them ", draft.token,
            "; allowed: up to ", most, " in [0, ", m_limits.vocabulary, ")");
    if (!drafts.empty()) m_proposals.push_back({&sequence, config.is_assisting_generation()});
}

void Drafting::settle(SequenceState& sequence) {
    DraftState& state = *sequence.drafts;
    for (size_t i = 0; i < state.proposed.size(); ++i) {
        if (state.proposed_at + i >= sequence.tokens.size()) return;
        const Draft& draft = state.proposed[i];
        const bool is_right = sequence.tokens[state.proposed_at + i] == draft.token;
        state.rates.record(draft.kind, is_right, sequence_decay);
        m_rates.record(draft.kind, is_right, common_decay);
        if (!is_right) return;
    }
}

float Drafting::rate_of(const SequenceState& sequence, size_t kind) const {
    return sequence.drafts->rates.rate(kind, m_rates.rate(kind, first_rate, first_weight),
                                       first_weight);
}

void Drafting::choose_lengths(size_t num_sequences, size_t rows) {
    // All drafts in the order of what they are worth: a draft comes after those before it, which
    // are confirmed at least as likely.
    double tokens = double(num_sequences);
    m_candidates.clear();
    for (Proposal& proposal : m_proposals) {
        float survival = 1;
        const SequenceState& sequence = *proposal.sequence;
        const float threshold = sequence.request->config().assistant_confidence_threshold;
        for (const Draft& draft : sequence.drafts->proposed) {
            const float rate = rate_of(sequence, draft.kind);
            if (rate < threshold) break;
            survival *= rate;
            if (proposal.is_fixed) {
                ++rows;
                ++proposal.length;
                tokens += double(survival);
            } else if (survival < least_survival) {
                break;
            } else {
                m_candidates.push_back({survival, &proposal});
            }
        }
    }
    std::stable_sort(
        m_candidates.begin(), m_candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.survival > b.survival; });
    double best_rate = least_gain * tokens / m_times.of(rows);
    size_t best = 0;
    const size_t most_rows = std::min(m_limits.most_rows, StepTimes::most_rows);
    for (size_t i = 0; i < m_candidates.size() && rows < most_rows; ++i) {
        tokens += double(m_candidates[i].survival);
        const double rate = tokens / m_times.of(++rows);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = i + 1;
    }
    for (size_t i = 0; i < best; ++i) ++m_candidates[i].proposal->length;
}

void Drafting::record(const Batch& batch, double time) {
    const bool decodes =
        std::all_of(batch.entries.begin(), batch.entries.end(),
                    [](const BatchEntry& entry) { return entry.num_tokens == entry.num_sampled; });
    if (decodes) m_times.record(batch.num_tokens, time);
}

void Drafting::clear_drafts() {
    for (Sequence* sequence : m_drafted) sequence->drop_drafts();
    m_drafted.clear();
}

void Drafting::learn(const Requests& requests) {
    if (!m_limits.automatic) return;
    for (const auto& request : requests.all())
        for (const auto& sequence : request->sequences) {
            const bool is_over = request->is_over() || sequence->is_finished;
            if (is_over && sequence->drafts && !std::exchange(sequence->drafts->is_learnt, true))
                m_drafter->learn(*sequence);
        }
}

}  // namespace pagewheel
