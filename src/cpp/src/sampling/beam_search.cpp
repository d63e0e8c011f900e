#include "sampling/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/logits.hpp"
#include "sampling/log_probs.hpp"
#include "sampling/sampler.hpp"

namespace pagewheel {

using Reason = GenerationFinishReason;

namespace {

constexpr double largest = double(std::numeric_limits<float>::max());

}  // namespace

BeamSearch::BeamSearch(const GenerationConfig& config, size_t prompt_length, size_t max_new_tokens,
                       Isa isa, const LogitsChain& chain)
    : m_config(config),
      m_has_grammar(chain.grammar() != nullptr),
      m_prompt_length(prompt_length),
      m_max_new_tokens(max_new_tokens),
      m_group_size(config.num_beams / config.num_beam_groups),
      m_isa(isa),
      m_groups(config.num_beam_groups),
      m_slots(1) {
    const bool has_other_stop =
        config.eos_token_id >= 0 && config.stop_token_ids.count(config.eos_token_id) == 0;
    const size_t num_stops = config.stop_token_ids.size() + has_other_stop;
    // So many that enough do not end, even if every beam's best tokens are the stop tokens.
    m_num_candidates = m_group_size * (1 + std::max<size_t>(1, num_stops));
    for (Group& group : m_groups) group.beams.resize(1);
    m_slots.front().in_use = true;
    m_slots.front().chain = chain.fork();
}

void BeamSearch::score(size_t slot, const std::vector<int64_t>& tokens, float* logits, size_t n) {
    const float best = logits[find_best_token(logits, n, m_isa)];
    const double log_total =
        double(best) + std::log(kernels::logits_kernels(m_isa).sum_exp(logits, n, best, 1.0f));
    std::vector<TokenLogit>& continuations = m_slots[slot].continuations;
    m_slots[slot].scored = true;
    try {
        m_slots[slot].chain.process({logits, n, log_total}, {tokens, m_prompt_length});
    } catch (const GrammarEnd& end) {
        m_slots[slot].is_whole = end.is_whole;
        return continuations.clear();
    }
    // Groups before can lower as many tokens as they have beams: what a group takes of the rest is
    // in the list even so.
    const size_t num_lowered = m_config.num_beams - m_group_size;
    const size_t num_wanted = std::max(m_num_candidates + num_lowered, m_config.logprobs);
    find_best_tokens(logits, n, std::min(n, num_wanted), std::numeric_limits<float>::lowest(),
                     m_isa, continuations);
    for (TokenLogit& token : continuations) token.logit = float(double(token.logit) - log_total);
}

bool BeamSearch::is_ready() const {
    return std::all_of(m_slots.begin(), m_slots.end(),
                       [](const Slot& slot) { return slot.scored || !slot.in_use; });
}

bool BeamSearch::is_done() const {
    return std::all_of(m_groups.begin(), m_groups.end(),
                       [](const Group& group) { return group.done; });
}

const BeamMoves& BeamSearch::advance(const StopsText& stops_text) {
    m_moves = {};
    m_chosen.clear();
    for (Group& group : m_groups)
        if (!group.done) advance_group(group, stops_text);
    place_beams();
    for (Slot& slot : m_slots) slot.scored = slot.is_whole = false;
    return m_moves;
}

void BeamSearch::find_candidates(const Group& group) {
    m_candidates.clear();
    for (size_t b = 0; b < group.beams.size(); ++b)
        for (const auto& [log_prob, token] : m_slots[group.beams[b].slot].continuations) {
            const auto times = std::count(m_chosen.begin(), m_chosen.end(), token);
            const float lowered = log_prob - m_config.diversity_penalty * float(times);
            m_candidates.push_back({group.beams[b].sum + double(lowered), b, token, lowered});
        }
    const size_t keep = std::min(m_num_candidates, m_candidates.size());
    std::partial_sort(m_candidates.begin(), m_candidates.begin() + ptrdiff_t(keep),
                      m_candidates.end(), [](const Candidate& a, const Candidate& b) {
                          if (a.sum != b.sum) return a.sum > b.sum;
                          return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
                      });
    m_candidates.resize(keep);
}

Reason BeamSearch::ends(const Beam& beam, const Candidate& candidate,
                        const StopsText& stops_text) const {
    return finish_reason(m_config, candidate.token, beam.tokens.size() + 1 >= m_max_new_tokens,
                         [&] { return stops_text(beam.slot, candidate.token); });
}

BeamSearch::Beam BeamSearch::continued(const Beam& beam, const Candidate& candidate) const {
    Beam next = beam;
    next.sum = candidate.sum;
    next.tokens.push_back(candidate.token);
    next.log_probs.push_back(candidate.log_prob);
    if (m_config.logprobs > 0)
        next.top_log_probs.push_back(top_log_probs(m_slots[beam.slot].continuations,
                                                   m_config.logprobs,
                                                   {candidate.log_prob, candidate.token}));
    return next;
}

void BeamSearch::advance_group(Group& group, const StopsText& stops_text) {
    find_candidates(group);
    std::vector<Beam> next;
    for (size_t i = 0; i < m_candidates.size(); ++i) {
        if (i >= m_group_size && next.size() == m_group_size) break;
        const Candidate& candidate = m_candidates[i];
        const Beam& parent = group.beams[candidate.beam];
        const Reason reason = ends(parent, candidate, stops_text);
        // The others are there in case the best ones end; as hypotheses they do not count.
        if (reason != Reason::NONE && i >= m_group_size) continue;
        Beam beam = continued(parent, candidate);
        ++m_moves.num_tokens;
        if (reason != Reason::NONE)
            complete(group, beam, reason);
        else
            next.push_back(std::move(beam));
    }
    if (m_candidates.empty() && group.beams.front().tokens.empty() && !m_has_grammar)
        throw_all_banned();
    for (const Beam& beam : group.beams)
        if (m_slots[beam.slot].is_whole)
            complete(group, beam, Reason::STOP);
        else if (m_candidates.empty())  // every token is banned
            complete(group, beam, m_has_grammar ? Reason::ERROR : Reason::LENGTH);
    group.beams = std::move(next);
    for (const Beam& beam : group.beams) m_chosen.push_back(beam.tokens.back());
    group.done = group.beams.empty() || cannot_improve(group);
    if (group.done) group.beams.clear();
}

double BeamSearch::final_score(double sum, size_t length) const {
    if (length == 0) return 0;
    // Extreme penalties make neither 0 / 0 nor what a float cannot hold.
    using Double = std::numeric_limits<double>;
    const double divisor = std::clamp(std::pow(double(length), double(m_config.length_penalty)),
                                      Double::min(), Double::max());
    return std::clamp(sum / divisor, -largest, largest);
}

Hypothesis BeamSearch::hypothesis(const Beam& beam, Reason reason) const {
    Hypothesis found = beam;
    found.score = float(final_score(beam.sum, beam.tokens.size()));
    found.finish_reason = reason;
    return found;
}

void BeamSearch::complete(Group& group, const Beam& beam, Reason reason) const {
    const Hypothesis found = hypothesis(beam, reason);
    const auto place =
        std::find_if(group.complete.begin(), group.complete.end(),
                     [&](const Hypothesis& other) { return other.score < found.score; });
    group.complete.insert(place, found);
    if (group.complete.size() > m_group_size) group.complete.pop_back();
}

bool BeamSearch::cannot_improve(const Group& group) const {
    if (group.complete.size() < m_group_size) return false;
    if (m_config.stop_criteria == StopCriteria::EARLY) return true;
    // The best beam's sum can only sink; it is worth most at the length that is best for it.
    const Beam& best = group.beams.front();
    const bool longest =
        m_config.stop_criteria == StopCriteria::NEVER && m_config.length_penalty > 0.0f;
    const size_t length = longest ? m_max_new_tokens : best.tokens.size();
    return final_score(best.sum, length) <= double(group.complete.back().score);
}

void BeamSearch::place_beams() {
    std::vector<bool> taken(m_slots.size(), false);
    std::vector<Beam*> forked;
    for (Group& group : m_groups)
        for (Beam& beam : group.beams)
            if (taken[beam.slot])
                forked.push_back(&beam);
            else
                taken[beam.slot] = true;
    std::vector<size_t> unused;  // those that hold a lost beam last: they are used first
    for (const bool held : {false, true})
        for (size_t s = m_slots.size(); s-- > 0;)
            if (!taken[s] && m_slots[s].in_use == held) unused.push_back(s);
    for (Beam* beam : forked) {
        size_t to = m_slots.size();
        if (unused.empty()) {
            m_slots.emplace_back();
        } else {
            to = unused.back();
            unused.pop_back();
        }
        m_slots[to].in_use = true;
        m_slots[to].chain = m_slots[beam->slot].chain.fork();
        m_moves.forks.push_back({beam->slot, to});
        beam->slot = to;
    }
    for (size_t slot : unused)
        if (std::exchange(m_slots[slot].in_use, false)) m_moves.dropped.push_back(slot);
    for (const Group& group : m_groups)
        for (const Beam& beam : group.beams)
            m_moves.appended.push_back({beam.slot, beam.tokens.back()});
}

std::vector<Hypothesis> BeamSearch::best() const {
    std::vector<Hypothesis> all;
    for (const Group& group : m_groups) {
        all.insert(all.end(), group.complete.begin(), group.complete.end());
        for (const Beam& beam : group.beams)
            if (!beam.tokens.empty()) all.push_back(hypothesis(beam, Reason::NONE));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (all.size() > m_config.num_return_sequences) all.resize(m_config.num_return_sequences);
    return all;
}

}  // namespace pagewheel
