#include "runtime/token_step.hpp"

#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "kernels/logits.hpp"

namespace pagewheel {

void TokenStep::sample(const Batch& batch, const Logits& logits) {
    size_t next_row = 0;
    for (const BatchEntry& entry : batch.entries) {
        if (entry.num_logits == 0) continue;
        Generation& generation = *entry.sequence->owner;
        const size_t first = std::exchange(next_row, next_row + entry.num_logits);
        if (generation.request->is_over()) continue;
        try {
            if (generation.sequence.wants_prompt_logits)
                record_prompt(generation, {logits, first, entry.num_logits});
            if (entry.samples())
                continue_sequence(generation,
                                  {logits, next_row - entry.num_sampled, entry.num_sampled});
        } catch (const LogitsError& error) {
            m_parts.requests.end(*generation.request,
                                 {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                                  concat("the request was cancelled: ", error.what()), true});
        }
    }
}

void TokenStep::continue_sequence(Generation& generation, const Rows& rows) {
    const Request& request = *generation.request;
    const size_t vocabulary = rows.logits.vocabulary;
    if (request.max_tokens <= generation.sequence.prompt_length)  // the prompt alone is wanted
        return m_parts.requests.end(*generation.request,
                                    {GenerationStatus::FINISHED, GenerationFinishReason::LENGTH});
    if (request.config.is_beam_search()) return m_beams.score(generation, rows.row(0), vocabulary);
    if (generation.sequence.num_drafted > 0) return confirm_drafts(generation, rows);
    std::vector<float> unchanged;  // the sampler writes its penalties into the row
    const bool has_siblings = request.generations.size() < request.state->outputs.size();
    if (has_siblings) unchanged.assign(rows.row(0), rows.row(0) + vocabulary);
    if (!append_token(generation, rows.row(0), vocabulary)) m_parts.requests.finish(generation);
    if (has_siblings) fork_siblings(generation, unchanged);
}

void TokenStep::confirm_drafts(Generation& generation, const Rows& rows) {
    Sequence& sequence = generation.sequence;
    const std::vector<int64_t> drafts(sequence.tokens.end() - ptrdiff_t(sequence.num_drafted),
                                      sequence.tokens.end());
    sequence.drop_drafts();
    size_t confirmed = 0;
    bool goes_on = append_token(generation, rows.row(0), rows.logits.vocabulary);
    while (goes_on && confirmed + 1 < rows.count && sequence.tokens.back() == drafts[confirmed])
        goes_on = append_token(generation, rows.row(++confirmed), rows.logits.vocabulary);
    m_parts.scheduler.take_back(sequence, rows.count - 1 - confirmed);
    if (!goes_on) m_parts.requests.finish(generation);
}

void TokenStep::record_prompt(Generation& generation, const Rows& rows) {
    const Sequence& sequence = generation.sequence;
    // Written by this thread alone, so that it may be read without the lock.
    const size_t num_known =
        generation.request->state->outputs[generation.index].all.prompt_log_probs.size();
    const Isa isa = detected_isa();
    const size_t vocabulary = rows.logits.vocabulary;
    std::vector<float> fresh;
    for (size_t i = 0; i < rows.count; ++i) {
        // The row of token p predicts token p + 1. After a preemption rows come again.
        const size_t next = sequence.num_cached - rows.count + i + 1;
        if (next >= sequence.prompt_length || next != num_known + fresh.size() + 1) continue;
        const float* values = rows.row(i);
        const float best = values[find_best_token(values, vocabulary, isa)];
        const double total = kernels::sum_exp(values, vocabulary, best, 1.0f, isa);
        fresh.push_back(float(double(values[sequence.tokens[next]] - best) - std::log(total)));
    }
    m_parts.output.append_prompt_log_probs(generation, fresh);
    const bool has_all = num_known + fresh.size() + 1 == sequence.prompt_length;
    if (has_all) generation.sequence.wants_prompt_logits = false;
}

void TokenStep::fork_siblings(Generation& first, const std::vector<float>& logits) {
    Request& request = *first.request;
    const auto& tokens = first.sequence.tokens;
    const std::vector<int64_t> prompt(tokens.begin(),
                                      tokens.begin() + ptrdiff_t(first.sequence.prompt_length));
    for (size_t i = 1; i < request.config.num_return_sequences; ++i) {
        request.generations.push_back(m_parts.admission.make_generation(request, i, prompt));
        Generation& sibling = *request.generations.back();
        if (first.is_finished)  // it holds no blocks any more: the sibling computes its own prompt
            m_parts.scheduler.add(sibling.sequence);
        else
            m_parts.scheduler.fork(first.sequence, sibling.sequence);
        if (m_parts.keeper && !first.is_finished)
            m_parts.keeper->fork(first.sequence, sibling.sequence);
        std::vector<float> row = logits;
        if (!append_token(sibling, row.data(), row.size())) m_parts.requests.finish(sibling);
    }
}

bool TokenStep::append_token(Generation& generation, float* logits, size_t vocabulary) {
    std::vector<int64_t>& tokens = generation.sequence.tokens;
    const SampledToken token =
        generation.sampler.sample({tokens, generation.sequence.prompt_length}, logits, vocabulary);
    tokens.push_back(token.id);
    return m_parts.output.append(generation, token) == GenerationFinishReason::NONE;
}

}  // namespace pagewheel
