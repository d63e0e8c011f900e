#include "runtime/beam_step.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {

void BeamStep::score(SequenceState& beam, float* logits, size_t vocabulary) {
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
    move(request, moves);
    m_parts.output.advance_beams(request, moves.num_tokens);
    if (request.beams->is_done()) m_parts.requests.end(request, {GenerationStatus::FINISHED});
}

void BeamStep::move(Request& request, const BeamMoves& moves) {
    for (const auto& [from, to] : moves.forks) fork(request, from, to);
    for (size_t slot : moves.dropped) m_parts.scheduler.discard(*request.sequences[slot]);
    for (const auto& [slot, token] : moves.appended) {
        SequenceState& beam = *request.sequences[slot];
        beam.tokens.push_back(token);
        m_parts.scheduler.resume(beam);
        m_parts.output.append_to_beam(beam, token);
    }
}

void BeamStep::fork(Request& request, size_t from, size_t to) {
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
