#include "runtime/token_step.hpp"

#include <tbb/task_arena.h>

#include <utility>

#include "base/check.hpp"
#include "kernels/team.hpp"
#include "runtime/thread_role.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {
namespace {

// Of one sequence in one step: more would hold the others up.
constexpr size_t most_forced = 256;

/// Its prompt is computed for all of its sequences, of which the others are made with its logits.
bool has_siblings_to_come(const Request& request) {
    return request.generations.size() < request.state->outputs.size();
}

}  // namespace

TokenStep::TokenStep(const StepParts& parts, size_t num_threads)
    : m_parts(parts), m_num_threads(num_threads), m_arena(int(num_threads)), m_beams(parts) {}

void TokenStep::sample(const Batch& batch, const Logits& logits) {
    choose_at_once(batch, logits);
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

void TokenStep::choose_at_once(const Batch& batch, const Logits& logits) {
    m_choices.clear();
    m_next_choice = 0;
    if (m_num_threads == 1) return;
    size_t next_row = 0;
    for (const BatchEntry& entry : batch.entries) {
        next_row += entry.num_logits;
        if (entry.num_sampled != 1 || entry.num_logits != 1 || entry.sequence->num_drafted > 0)
            continue;
        Generation& generation = *entry.sequence->owner;
        const Request& request = *generation.request;
        if (request.is_over() || request.config.is_beam_search() ||
            request.max_tokens <= entry.sequence->prompt_length || has_siblings_to_come(request) ||
            !generation.sampler.runs_anywhere())
            continue;
        m_choices.push_back({&generation, logits.row(next_row - 1)});
    }
    if (m_choices.size() < 2) return m_choices.clear();
    m_arena.execute([&] {
        kernels::run_phases(kernels::Phase{
            m_choices.size(), [&](size_t i) { choose(m_choices[i], logits.vocabulary); }});
    });
}

void TokenStep::choose(Choice& choice, size_t vocabulary) {
    Sequence& sequence = choice.generation->sequence;
    // A processor of the caller's may call the pipeline, which is in this step on every thread, and
    // may wait for tasks of its own, among which it must not take one of ours.
    const ThreadRole role(*choice.generation->request->state->inbox, ThreadRole::Kind::STEP);
    try {
        tbb::this_task_arena::isolate([&] {
            choice.token = choice.generation->sampler.sample(
                {sequence.tokens, sequence.prompt_length}, choice.logits, vocabulary);
            if (!choice.generation->request->rules.appends_forced) return;
            // append_forced() finds it done.
            sequence.tokens.push_back(choice.token.id);
            choice.generation->sampler.grammar()->find_forced(
                {sequence.tokens, sequence.prompt_length});
            sequence.tokens.pop_back();
        });
    } catch (...) {
        choice.failure = std::current_exception();
    }
}

const TokenStep::Choice* TokenStep::choice_of(const Generation& generation) {
    // Those of requests that have ended meanwhile are passed over.
    for (size_t i = m_next_choice; i < m_choices.size(); ++i) {
        if (m_choices[i].generation != &generation) continue;
        m_next_choice = i + 1;
        return &m_choices[i];
    }
    return nullptr;
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
    const bool has_siblings = has_siblings_to_come(request);
    if (has_siblings) unchanged.assign(rows.row(0), rows.row(0) + vocabulary);
    if (!append_token(generation, rows.row(0), vocabulary) ||
        !append_forced(generation, vocabulary))
        m_parts.requests.finish(generation);
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
    if (!goes_on || !append_forced(generation, rows.logits.vocabulary))
        m_parts.requests.finish(generation);
}

void TokenStep::record_prompt(Generation& generation, const Rows& rows) {
    const Sequence& sequence = generation.sequence;
    // Written by this thread alone, so that it may be read without the lock.
    const size_t num_known =
        generation.request->state->outputs[generation.index].all.prompt_log_probs.size();
    const Isa isa = detected_isa();
    const size_t vocabulary = rows.logits.vocabulary;
    const size_t num_top = generation.request->config.logprobs;
    PromptLogProbs fresh;
    for (size_t i = 0; i < rows.count; ++i) {
        // The row of token p predicts token p + 1. After a preemption rows come again.
        const size_t next = sequence.num_cached - rows.count + i + 1;
        if (next >= sequence.prompt_length || next != num_known + fresh.tokens.size() + 1) continue;
        LogProbs row(rows.row(i), vocabulary, isa);
        fresh.tokens.push_back(row.of(sequence.tokens[next]));
        row.find_top(num_top, sequence.tokens[next], fresh.top.emplace_back());
    }
    const size_t num_fresh = fresh.tokens.size();
    m_parts.output.append_prompt_log_probs(generation, std::move(fresh));
    const bool has_all = num_known + num_fresh + 1 == sequence.prompt_length;
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
        if (!append_token(sibling, row.data(), row.size()) || !append_forced(sibling, row.size()))
            m_parts.requests.finish(sibling);
    }
}

bool TokenStep::append_forced(Generation& generation, size_t vocabulary) {
    if (!generation.request->rules.appends_forced) return true;
    Sequence& sequence = generation.sequence;
    GrammarRule& grammar = *generation.sampler.grammar();
    const size_t end = sequence.tokens.size() + most_forced;
    while (sequence.tokens.size() < end) {
        const std::vector<int64_t>& forced =
            grammar.find_forced({sequence.tokens, sequence.prompt_length});
        if (forced.empty()) return true;
        for (const int64_t token : forced) {
            // The tokenizer may know more tokens than the model.
            if (size_t(token) >= vocabulary || sequence.tokens.size() == end) return true;
            sequence.tokens.push_back(token);
            const SampledToken certain{token, 0.0f};
            if (m_parts.output.append(generation, certain) != GenerationFinishReason::NONE)
                return false;
        }
    }
    return true;
}

bool TokenStep::append_token(Generation& generation, float* logits, size_t vocabulary) {
    std::vector<int64_t>& tokens = generation.sequence.tokens;
    const Choice* choice = choice_of(generation);
    try {
        if (choice && choice->failure) std::rethrow_exception(choice->failure);
        const SampledToken token =
            choice ? choice->token
                   : generation.sampler.sample({tokens, generation.sequence.prompt_length}, logits,
                                               vocabulary);
        tokens.push_back(token.id);
        return m_parts.output.append(generation, token) == GenerationFinishReason::NONE;
    } catch (const GrammarEnd& end) {
        using Reason = GenerationFinishReason;
        m_parts.output.finish(generation, end.is_whole ? Reason::STOP : Reason::ERROR);
        return false;
    }
}

}  // namespace pagewheel
