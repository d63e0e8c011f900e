// Beam search as the step loop drives it.
#include <utility>

#include "runtime/engine.hpp"

namespace pagewheel {

void Engine::score_beam(SequenceRecord& record, float* logits) {
    Request& request = *record.request;
    const size_t prompt_length = record.sequence.prompt_length;
    if (!request.beams)
        request.beams = std::make_unique<BeamSearch>(
            request.config, prompt_length,
            request.max_tokens - std::min(request.max_tokens, prompt_length), detected_isa());
    record.sequence.wants_prompt_logits = false;  // it has them
    request.beams->score(record.index, record.sequence.tokens, logits, m_model->vocabulary());
    // Most often they come in one step. A beam that was preempted is idle until its slot's turn;
    // what it was to be continued with is known, so the others need not wait for its blocks.
    if (!request.beams->is_ready()) return;
    move_beams(request, request.beams->advance([&](size_t slot, int64_t token) {
        return completes_stop_string(*request.records[slot], token);
    }));
    {
        const std::lock_guard lock(request.state->mutex);
        SequenceRecord& first = *request.records.front();
        time_token(first, first.latest_token == Clock::time_point());
    }
    if (request.beams->is_done()) end(request, GenerationStatus::FINISHED);
}

void Engine::move_beams(Request& request, const BeamMoves& moves) {
    for (const auto& [from, to] : moves.forks) fork_beam(request, from, to);
    for (size_t slot : moves.dropped) m_scheduler.discard(request.records[slot]->sequence);
    for (const auto& [slot, token] : moves.appended) {
        SequenceRecord& record = *request.records[slot];
        record.sequence.tokens.push_back(token);
        m_scheduler.resume(record.sequence);
        if (request.config.stop_strings.empty()) continue;
        const auto begin = Clock::now();
        record.text.append(token);
        m_step.text_time += microseconds_since(begin);
    }
    m_step.num_generated_tokens += moves.num_tokens;
}

void Engine::fork_beam(Request& request, size_t from, size_t to) {
    const SequenceRecord& parent = *request.records[from];
    const Sequence& stem = parent.sequence;
    if (to == request.records.size())
        request.records.push_back(make_record(
            request, to, {stem.tokens.begin(), stem.tokens.begin() + long(stem.prompt_length)}));
    SequenceRecord& child = *request.records[to];
    // The full blocks of a beam that is lost are in the prefix tree; its last one is of no use.
    m_scheduler.discard(child.sequence);
    child.sequence.tokens = stem.tokens;
    child.text = parent.text;
    m_scheduler.fork(stem, child.sequence);
    if (m_keeper) m_keeper->fork(stem, child.sequence);
}

bool Engine::completes_stop_string(const SequenceRecord& record, int64_t token) {
    const auto begin = Clock::now();
    GeneratedText text = record.text;
    text.append(token);
    m_step.text_time += microseconds_since(begin);
    return text.stopped();
}

void Engine::publish_beams(Request& request) {
    std::vector<Hypothesis> found = request.beams->best();
    GenerationHandle::State& state = *request.state;
    const std::lock_guard lock(state.mutex);
    // Fewer than were asked for if there are not so many; an ended request has at least one.
    if (found.empty()) found.emplace_back();
    state.outputs.resize(found.size());
    state.num_read.resize(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
        GenerationOutput& output = state.outputs[i];
        state.metrics.num_generated_tokens += found[i].tokens.size();
        output.generated_ids = std::move(found[i].tokens);
        if (request.config.logprobs > 0)
            output.generated_log_probs = std::move(found[i].log_probs);
        else
            output.generated_log_probs.assign(output.generated_ids.size(), 0.0f);
        output.score = found[i].score;
        output.finish_reason = found[i].finish_reason;
    }
}

}  // namespace pagewheel
