#include "runtime/drafting.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {
namespace {

// A smaller gain is within the error of the estimates.
constexpr double least_gain = 1.03;
constexpr float least_survival = 0.05f;
// The weights of drafts fall by this with each one after them, of a sequence and of all.
constexpr float sequence_decay = 0.9f, common_decay = 0.99f;
constexpr float first_rate = 0.5f, first_weight = 4;
// Where drafts do not pay, one is tried from time to time, since that may change. The next try
// waits for so many times what the last one took: `rest_of_each_try` times the tries so far,
// `most_rest` at most, and never more than `most_patience` steps.
constexpr double most_rest = 200, rest_of_each_try = 32, most_patience = 1024;

bool asks_for_drafts(const Request& request) {
    return request.config().is_assisting_generation() || !request.prediction.empty();
}

/// Whether one sequence is all there is to compute.
bool is_alone(const Requests& requests) {
    size_t sequences = 0;
    for (const auto& request : requests.all())
        if (!request->is_over()) sequences += std::max<size_t>(1, request->sequences.size());
    return sequences == 1;
}

}  // namespace

void Drafting::propose(Requests& requests, StepStatistics& step) {
    const auto begin = m_now();
    m_proposals.clear();
    m_spent = 0;
    size_t num_sequences = 0, num_rows = 0;
    const bool for_all = !m_limits.only_alone || is_alone(requests);
    for (const auto& request : requests.all()) {
        if (request->config().is_beam_search() || request->is_over()) continue;
        try {
            for (const auto& sequence : request->sequences) {
                if (sequence->stage != Sequence::Stage::DECODING || sequence->pending_grammar)
                    continue;
                ++num_sequences;
                num_rows += sequence->num_uncached();
                if (for_all ? drafts_for(*request) : asks_for_drafts(*request)) propose(*sequence);
            }
        } catch (const std::exception& error) {
            end(requests, *request, error);
        }
    }
    if (m_proposals.empty()) return;
    if (m_drafter->computes())
        compute(requests, num_sequences, num_rows, step);
    else
        choose_lengths(num_sequences, num_rows);
    for (const Proposal& proposal : m_proposals) {
        SequenceState& sequence = *proposal.sequence;
        if (proposal.length == 0 || sequence.request->is_over()) continue;
        const std::vector<Draft>& drafts = sequence.drafts->proposed;
        for (size_t i = 0; i < proposal.length; ++i) sequence.tokens.push_back(drafts[i].token);
        sequence.num_drafted = proposal.length;
        m_drafted.push_back(&sequence);
    }
    step.draft_time = double(microseconds_since(begin, m_now()));
}

bool Drafting::drafts_for(const Request& request) const {
    return m_limits.automatic || asks_for_drafts(request);
}

void Drafting::observe(const Batch& batch, const float* hidden_states) {
    if (!hidden_states) return;
    for (const BatchEntry& entry : batch.entries) {
        SequenceState& sequence = state_of(*entry.sequence);
        const Request& request = *sequence.request;
        if (!sequence.drafts && !request.config().is_beam_search() && drafts_for(request))
            sequence.drafts = std::make_unique<DraftState>();
    }
    m_drafter->observe(batch, hidden_states);
}

void Drafting::end(Requests& requests, Request& request, const std::exception& error) {
    requests.end(request,
                 {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                  Error(concat("the drafter failed: ", error.what()), ErrorCode::drafter_failed)});
}

void Drafting::propose(SequenceState& sequence) {
    if (!sequence.drafts) sequence.drafts = std::make_unique<DraftState>();
    settle(sequence);
    std::vector<Draft>& drafts = sequence.drafts->proposed;
    sequence.drafts->proposed_at = sequence.tokens.size();
    // The model gives one token more than it confirms.
    const GenerationConfig& config = sequence.request->config();
    const size_t room = sequence.request->max_tokens - sequence.tokens.size();
    size_t most = room > 0 ? room - 1 : 0;
    if (const size_t wanted = config.num_assistant_tokens) most = std::min(most, wanted);
    // Jump-forward tokens are in the span, too. They have the bits that they have without drafts.
    const size_t uncached = sequence.num_uncached(), longest = m_limits.longest_span;
    if (config.num_assistant_tokens == 0 || uncached > 1)
        most = std::min(most, longest - std::min(uncached, longest));
    if (m_eviction) most = m_eviction->most_drafts(sequence, most);
    if (most == 0) return;
    m_drafter->propose(sequence, most, drafts);
    check_drafts(sequence, most);
    if (!drafts.empty() || m_drafter->computes())
        m_proposals.push_back({&sequence, most, config.is_assisting_generation()});
}

void Drafting::check_drafts(const SequenceState& sequence, size_t most) const {
    const std::vector<Draft>& drafts = sequence.drafts->proposed;
    for (const Draft& draft : drafts)
        check_argument(
            drafts.size() <= most && draft.token >= 0 && size_t(draft.token) < m_limits.vocabulary,
            "the drafter proposed ", drafts.size(), " tokens, one of them ", draft.token,
            "; allowed: up to ", most, " in [0, ", m_limits.vocabulary, ")");
}

void Drafting::compute(Requests& requests, size_t num_sequences, size_t num_rows,
                       StepStatistics& step) {
    pass_over();
    for (;;) {
        choose_lengths(num_sequences, num_rows);
        // A sequence whose latest draft is not worth a row gets no further one.
        m_active.clear();
        m_extended.clear();
        for (Proposal& proposal : m_proposals)
            if (!proposal.is_done && !proposal.sequence->request->is_over() &&
                proposal.length < proposal.most &&
                proposal.length == proposal.sequence->drafts->proposed.size()) {
                m_active.push_back(&proposal);
                m_extended.push_back(proposal.sequence);
            }
        if (m_active.empty()) return;
        if (!pays()) {
            if (!explores()) return;
            m_active.resize(1);
            m_extended.resize(1);
        }
        const auto begin = m_now();
        try {
            m_drafter->extend(m_extended);
            for (Proposal* proposal : m_active) {
                const size_t count = proposal->sequence->drafts->proposed.size();
                proposal->is_done = count == proposal->length;
                step.num_computed_drafts += count - proposal->length;
                check_drafts(*proposal->sequence, proposal->length + 1);
            }
        } catch (const std::exception& error) {
            for (const SequenceState* sequence : m_extended)
                end(requests, *sequence->request, error);
        }
        ++step.num_draft_steps;
        const auto time = double(microseconds_since(begin, m_now()));
        m_spent += time;
        if (m_times.level() > 0)
            m_patience = std::min(
                time / m_times.level() * std::min(rest_of_each_try * double(m_tries), most_rest),
                most_patience);
    }
}

void Drafting::pass_over() {
    for (Proposal& proposal : m_proposals) {
        DraftState& state = *proposal.sequence->drafts;
        if (state.proposed.empty()) continue;
        const auto rate = [&](size_t kind) { return rate_of(*proposal.sequence, kind); };
        proposal.is_done = rate(state.proposed.front().kind) >= rate(Draft::computed);
        if (!proposal.is_done) state.proposed.swap(state.passed_over);
    }
}

bool Drafting::pays() const {
    double tokens = m_tokens, replayed = m_replayed;
    const size_t rows = m_rows + m_active.size();
    for (Proposal* proposal : m_active) {
        if (proposal->is_fixed) return true;
        const float rate = rate_of(*proposal->sequence, Draft::computed);
        const Candidate next = candidate(*proposal, proposal->length, proposal->survival, rate);
        tokens += double(next.survival);
        replayed += double(next.replayed);
    }
    if (m_times.level() == 0 || rows > std::min(m_limits.most_rows, StepTimes::most_rows))
        return false;
    const double more = m_drafter->time_to_extend(m_extended) / m_times.level();
    if (more == 0 && m_spent > 0) return false;  // one at a time while its time is not known
    const double gain = m_spent > 0 ? 1 : least_gain;
    return tokens / (time_of(double(rows) + replayed) + more) >
           gain * m_tokens / time_of(double(m_rows) + m_replayed);
}

bool Drafting::explores() {
    if (m_spent > 0 || m_times.level() == 0 || --m_patience >= 0) return false;
    ++m_tries;
    return true;
}

void Drafting::settle(SequenceState& sequence) {
    settle(sequence, sequence.drafts->passed_over);
    settle(sequence, sequence.drafts->proposed);
}

void Drafting::settle(SequenceState& sequence, std::vector<Draft>& drafts) {
    DraftState& state = *sequence.drafts;
    const auto record = [&](size_t kind, bool is_right) {
        state.rates.record(kind, is_right, sequence_decay);
        m_rates.record(kind, is_right, common_decay);
    };
    for (size_t i = 0; i < drafts.size() && state.proposed_at + i < sequence.tokens.size(); ++i) {
        const Draft& draft = drafts[i];
        const bool is_right = sequence.tokens[state.proposed_at + i] == draft.token;
        record(draft.kind, is_right);
        if (draft.kind >= Draft::first_computed) record(Draft::computed, is_right);
        if (!is_right) break;
    }
    drafts.clear();
}

float Drafting::rate_of(const SequenceState& sequence, size_t kind) const {
    return sequence.drafts->rates.rate(kind, m_rates.rate(kind, first_rate, first_weight),
                                       first_weight);
}

Drafting::Candidate Drafting::candidate(Proposal& proposal, size_t num_before, float survival,
                                        float rate) const {
    const float wrong = survival * (1 - rate);
    return {survival * rate, m_limits.replays ? float(num_before) * wrong : 0, &proposal};
}

double Drafting::time_of(double rows) const {
    return m_times.of(rows) + (m_times.level() > 0 ? m_spent / m_times.level() : 0);
}

void Drafting::choose_lengths(size_t num_sequences, size_t num_rows) {
    // All drafts in the order of what they are worth: a draft comes after those before it, which
    // are confirmed at least as likely.
    m_rows = num_rows;
    m_tokens = double(num_sequences);
    m_replayed = 0;
    m_candidates.clear();
    for (Proposal& proposal : m_proposals) {
        proposal.length = 0;
        proposal.survival = 1;
        float survival = 1;
        const SequenceState& sequence = *proposal.sequence;
        const float threshold = sequence.request->config().assistant_confidence_threshold;
        const std::vector<Draft>& drafts = sequence.drafts->proposed;
        for (size_t i = 0; i < drafts.size(); ++i) {
            const float rate = rate_of(sequence, drafts[i].kind);
            if (rate < threshold) break;
            const Candidate draft = candidate(proposal, i, survival, rate);
            survival = draft.survival;
            if (proposal.is_fixed)
                take(draft);
            else if (survival < least_survival)
                break;
            else
                m_candidates.push_back(draft);
        }
    }
    std::stable_sort(
        m_candidates.begin(), m_candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.survival > b.survival; });
    double tokens = m_tokens, rows = double(m_rows) + m_replayed;
    double best_rate = least_gain * tokens / time_of(rows);
    size_t best = 0;
    const size_t most_rows = std::min(m_limits.most_rows, StepTimes::most_rows);
    for (size_t i = 0; i < m_candidates.size() && m_rows + i < most_rows; ++i) {
        tokens += double(m_candidates[i].survival);
        rows += 1 + double(m_candidates[i].replayed);
        const double rate = tokens / time_of(rows);
        if (rate <= best_rate) continue;
        best_rate = rate;
        best = i + 1;
    }
    for (size_t i = 0; i < best; ++i) take(m_candidates[i]);
}

void Drafting::take(const Candidate& draft) {
    ++m_rows;
    ++draft.proposal->length;
    draft.proposal->survival = draft.survival;
    m_tokens += double(draft.survival);
    m_replayed += double(draft.replayed);
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

void Drafting::finish(const Requests& requests) {
    for (const auto& request : requests.all())
        for (const auto& sequence : request->sequences) {
            const bool is_over = request->is_over() || sequence->is_finished;
            if (is_over && sequence->drafts && !std::exchange(sequence->drafts->is_finished, true))
                m_drafter->finish(*sequence);
        }
}

}  // namespace pagewheel
