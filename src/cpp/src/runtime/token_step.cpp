#include <tbb/task_arena.h>
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "kernels/team.hpp"
#include "runtime/requests.hpp"
#include "runtime/token_step.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {

namespace {

// So many for one sequence in one step: more would hold the others up.
constexpr size_t max_jump_forward = 256;

/// The prompt is computed for all sequences of the request: the others are made with its logits.
bool has_siblings_to_come(const Request& request) {
    return request.sequences.size() < request.state->outputs.size();
}

}  // namespace

TokenStep::TokenStep(const StepParts& parts, size_t num_threads)
    : m_parts(parts), m_num_threads(num_threads), m_arena(int(num_threads)) {}

void TokenStep::sample(const Batch& batch, const Logits& logits) {
    choose_at_once(batch, logits);
    size_t next_row = 0;
    for (const BatchEntry& entry : batch.entries) {
        if (entry.num_logits == 0) continue;
        SequenceState& sequence = state_of(*entry.sequence);
        const size_t first = std::exchange(next_row, next_row + entry.num_logits);
        if (sequence.request->is_over()) continue;
        attempt(sequence, [&] {
            if (sequence.wants_prompt_logits)
                record_prompt(sequence, {logits, first, entry.num_logits});
            if (entry.samples())
                continue_sequence(sequence,
                                  {logits, next_row - entry.num_sampled, entry.num_sampled});
        });
    }
}

template <class Work>
void TokenStep::attempt(SequenceState& sequence, Work&& work) {
    try {
        work();
    } catch (const LogitsError& error) {
        m_parts.requests.end(*sequence.request,
                             {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                              Error(concat("the request was cancelled: ", error.what()),
                                    error.code(), error.parameter()),
                              true});
    }
}

void TokenStep::continue_pending() {
    size_t num_left = 0;
    for (size_t i = 0; i < m_pending.size(); ++i) {
        SequenceState& sequence = *m_pending[i];
        if (sequence.request->is_over()) continue;
        if (!m_parts.grammars.find_mask(sequence)) {
            m_pending[num_left++] = &sequence;
            continue;
        }
        std::vector<float> logits = std::move(sequence.saved_logits);
        sequence.saved_logits = {};
        sequence.pending_grammar = false;
        attempt(sequence, [&] {
            try {
                continue_by(sequence, logits.data(), logits.size());
            } catch (const LogitsError&) {
                throw;
            } catch (const std::exception& error) {  // there is no batch to end with it
                throw LogitsError(error.what());
            }
        });
        // A beam has no token before the others are scored, too.
        if (!sequence.request->config().is_beam_search()) m_parts.scheduler.resume(sequence);
    }
    m_pending.resize(num_left);
}

void TokenStep::wait_for_pending() {
    if (!m_pending.empty()) m_parts.grammars.wait_for_any(m_pending);
}

void TokenStep::forget_ended() {
    m_pending.erase(
        std::remove_if(m_pending.begin(), m_pending.end(),
                       [](const SequenceState* pending) { return pending->request->is_over(); }),
        m_pending.end());
}

void TokenStep::save_logits(SequenceState& sequence, const float* logits, size_t vocabulary) {
    m_pending.push_back(&sequence);
    sequence.saved_logits.assign(logits, logits + vocabulary);
    sequence.pending_grammar = true;
}

void TokenStep::choose_at_once(const Batch& batch, const Logits& logits) {
    m_choosing.clear();
    if (m_num_threads == 1) return;
    size_t next_row = 0;
    for (const BatchEntry& entry : batch.entries) {
        next_row += entry.num_logits;
        if (entry.num_sampled != 1 || entry.num_logits != 1 || entry.sequence->num_drafted > 0)
            continue;
        SequenceState& sequence = state_of(*entry.sequence);
        const Request& request = *sequence.request;
        if (request.is_over() || request.config().is_beam_search() ||
            request.max_tokens <= entry.sequence->prompt_length || has_siblings_to_come(request) ||
            !sequence.sampler.runs_anywhere())
            continue;
        m_choosing.emplace_back(&sequence, logits.row(next_row - 1));
    }
    if (m_choosing.size() < 2) return;
    m_arena.execute([&] {
        kernels::run_phases(kernels::Phase{m_choosing.size(), [&](size_t i) {
                                               choose(*m_choosing[i].first, m_choosing[i].second,
                                                      logits.vocabulary);
                                           }});
    });
}

void TokenStep::choose(SequenceState& sequence, float* logits, size_t vocabulary) {
    if (!m_parts.grammars.find_mask(sequence)) return;
    SequenceState::Choice& choice = sequence.choice.emplace();
    // A processor of the caller's may call the pipeline, which is in this step on every thread, and
    // may wait for tasks of its own, among which it must not take one of ours.
    const ThreadRole role(*sequence.request->state->queue, ThreadRole::Kind::STEP);
    try {
        tbb::this_task_arena::isolate([&] {
            choice.token = sequence.sampler.sample({sequence.tokens, sequence.prompt_length},
                                                   logits, vocabulary);
        });
    } catch (...) {
        choice.failure = std::current_exception();
    }
}

void TokenStep::continue_sequence(SequenceState& sequence, const Rows& rows) {
    const Request& request = *sequence.request;
    const size_t vocabulary = rows.logits.vocabulary;
    if (request.max_tokens <= sequence.prompt_length)  // the prompt alone is wanted
        return m_parts.requests.end(*sequence.request,
                                    {GenerationStatus::FINISHED, GenerationFinishReason::LENGTH});
    if (sequence.num_drafted > 0) return confirm_drafts(sequence, rows);
    if (!sequence.choice && !m_parts.grammars.find_mask(sequence))
        return save_logits(sequence, rows.row(0), vocabulary);
    if (!has_siblings_to_come(request) || request.config().is_beam_search())
        return continue_by(sequence, rows.row(0), vocabulary);
    fork_siblings(sequence);  // before it may end: they share the prompt's blocks with it
    std::vector<float> row;   // the sampler writes its penalties into it
    for (const auto& each : sequence.request->sequences) {
        row.assign(rows.row(0), rows.row(0) + vocabulary);
        continue_by(*each, row.data(), vocabulary);
    }
}

void TokenStep::continue_by(SequenceState& sequence, float* logits, size_t vocabulary) {
    if (sequence.request->config().is_beam_search())
        score_beam(sequence, logits, vocabulary);
    else if (!append_token(sequence, logits, vocabulary) ||
             !append_jump_forward(sequence, vocabulary))
        m_parts.requests.finish(sequence);
}

void TokenStep::confirm_drafts(SequenceState& sequence, const Rows& rows) {
    const std::vector<int64_t> drafts(sequence.tokens.end() - ptrdiff_t(sequence.num_drafted),
                                      sequence.tokens.end());
    sequence.drop_drafts();
    const size_t vocabulary = rows.logits.vocabulary;
    size_t confirmed = 0;
    bool goes_on = true, has_mask = true;
    for (;; ++confirmed) {
        has_mask = m_parts.grammars.find_mask(sequence);
        if (!has_mask) break;
        goes_on = append_token(sequence, rows.row(confirmed), vocabulary);
        if (!goes_on || confirmed + 1 == rows.count || sequence.tokens.back() != drafts[confirmed])
            break;
    }
    m_parts.scheduler.rollback(sequence, rows.count - 1 - confirmed);
    m_parts.output.count_drafts(sequence, rows.count - 1, confirmed);
    if (!has_mask)
        save_logits(sequence, rows.row(confirmed), vocabulary);
    else if (!goes_on || !append_jump_forward(sequence, vocabulary))
        m_parts.requests.finish(sequence);
}

void TokenStep::record_prompt(SequenceState& sequence, const Rows& rows) {
    // Written by this thread alone, so that it may be read without the lock.
    const size_t num_known =
        sequence.request->state->outputs[sequence.index].all.prompt_log_probs.size();
    const Isa isa = detected_isa();
    const size_t vocabulary = rows.logits.vocabulary;
    const size_t num_top = sequence.request->config().logprobs;
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
    m_parts.output.append_prompt_log_probs(sequence, std::move(fresh));
    const bool has_all = num_known + num_fresh + 1 == sequence.prompt_length;
    if (has_all) sequence.wants_prompt_logits = false;
}

void TokenStep::fork_siblings(SequenceState& first) {
    Request& request = *first.request;
    const std::vector<int64_t> prompt = first.tokens;
    for (size_t i = 1; i < request.config().num_return_sequences; ++i) {
        request.sequences.push_back(m_parts.admission.make_sequence(request, i, prompt));
        SequenceState& sibling = *request.sequences.back();
        m_parts.scheduler.fork(first, sibling);
        if (m_parts.eviction) m_parts.eviction->fork(first, sibling);
    }
}

bool TokenStep::append_jump_forward(SequenceState& sequence, size_t vocabulary) {
    if (!sequence.request->rules.appends_jump_forward) return true;
    const size_t end = sequence.tokens.size() + max_jump_forward;
    while (sequence.tokens.size() < end) {
        const std::vector<int64_t> found = m_parts.grammars.find_jump_forward(sequence);
        if (found.empty()) return true;
        for (const int64_t token : found) {
            // The tokenizer may know more tokens than the model.
            if (size_t(token) >= vocabulary || sequence.tokens.size() == end) return true;
            sequence.tokens.push_back(token);
            const SampledToken certain{token, 0.0f};
            if (m_parts.output.append(sequence, certain) != GenerationFinishReason::NONE)
                return false;
        }
    }
    return true;
}

bool TokenStep::append_token(SequenceState& sequence, float* logits, size_t vocabulary) {
    std::vector<int64_t>& tokens = sequence.tokens;
    const auto choice = std::exchange(sequence.choice, std::nullopt);
    try {
        if (choice && choice->failure) std::rethrow_exception(choice->failure);
        const SampledToken token =
            choice ? choice->token
                   : sequence.sampler.sample({tokens, sequence.prompt_length}, logits, vocabulary);
        tokens.push_back(token.id);
        return m_parts.output.append(sequence, token) == GenerationFinishReason::NONE;
    } catch (const GrammarEnd& end) {
        m_parts.output.finish(sequence, end);
        return false;
    }
}

void TokenStep::score_beam(SequenceState& beam, float* logits, size_t vocabulary) {
    Request& request = *beam.request;
    const size_t prompt_length = beam.prompt_length;
    if (!request.beams)
        request.beams = std::make_unique<BeamSearch>(
            request.config(), prompt_length,
            request.max_tokens - std::min(request.max_tokens, prompt_length), detected_isa(),
            request.chain);
    request.beams->score(beam.index, beam.tokens, logits, vocabulary);
    // Most often they come in one step. A beam that was preempted is idle until its slot's turn;
    // what it was to be continued with is known, so the others need not wait for its blocks.
    if (!request.beams->is_ready()) return;
    const BeamMoves& moves = request.beams->advance([&](size_t slot, int64_t token) {
        return m_parts.output.completes_stop_string(*request.sequences[slot], token);
    });
    move_beams(request, moves);
    m_parts.output.advance_beams(request, moves.num_tokens);
    if (request.beams->is_done()) m_parts.requests.end(request, {GenerationStatus::FINISHED});
}

void TokenStep::move_beams(Request& request, const BeamMoves& moves) {
    for (const auto& [from, to] : moves.forks) fork_beam(request, from, to);
    for (size_t slot : moves.dropped) m_parts.scheduler.discard(*request.sequences[slot]);
    for (const auto& [slot, token] : moves.appended) {
        SequenceState& beam = *request.sequences[slot];
        beam.tokens.push_back(token);
        m_parts.scheduler.resume(beam);
        m_parts.output.append_to_beam(beam, token);
    }
}

void TokenStep::fork_beam(Request& request, size_t from, size_t to) {
    const SequenceState& parent = *request.sequences[from];
    if (to == request.sequences.size())
        request.sequences.push_back(m_parts.admission.make_sequence(
            request, to,
            {parent.tokens.begin(), parent.tokens.begin() + ptrdiff_t(parent.prompt_length)}));
    SequenceState& child = *request.sequences[to];
    // The full blocks of a beam that is lost are in the prefix tree; its last one is of no use.
    m_parts.scheduler.discard(child);
    child.tokens = parent.tokens;
    child.beam_text = parent.beam_text;
    m_parts.scheduler.fork(parent, child);
    if (m_parts.eviction) m_parts.eviction->fork(parent, child);
}

}  // namespace pagewheel
