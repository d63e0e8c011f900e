#include "runtime/output.hpp"

#include <iterator>
#include <utility>

#include "sampling/sampler.hpp"

namespace pagewheel {
namespace {

using Reason = GenerationFinishReason;

/// What has stopped a beam, whose tokens `text` gets if that is a stop string.
StopReason beam_stop_reason(const GenerationConfig& config, const GenerationOutput& output,
                            SequenceText& text) {
    const int64_t last = output.generated_ids.back();
    if (!config.ignore_eos && config.is_stop_token(last)) return last;
    text.append(output.generated_ids);
    return text.stop_string();
}

/// Adds the duration of `work` in microseconds to `time`.
template <class Work>
auto timed(double& time, Work&& work) {
    const auto begin = Clock::now();
    const auto result = work();
    time += microseconds_since(begin);
    return result;
}

}  // namespace

Reason Output::append(SequenceState& sequence, const SampledToken& token) {
    const Request& request = *sequence.request;
    GenerationHandle::State& state = *request.state;
    ++m_step.num_generated_tokens;
    m_notifications.add(*sequence.request);
    std::unique_lock text_lock(state.text_mutex, std::defer_lock);
    const auto stops_text = [&] {
        text_lock.lock();  // until it is published: nobody reads text without its token
        return timed(m_step.text_time, [&] {
            SequenceText& text = state.texts[sequence.index];
            text.append({token.id});
            return text.stopped();
        });
    };
    const bool is_full = sequence.tokens.size() >= request.max_tokens;
    const Reason reason = finish_reason(request.config(), token.id, is_full, stops_text);
    StopReason stop_reason;
    if (reason == Reason::STOP && text_lock.owns_lock())
        stop_reason = state.texts[sequence.index].stop_string();
    else if (reason == Reason::STOP)
        stop_reason = token.id;
    publish(sequence, token, reason, std::move(stop_reason));
    return reason;
}

void Output::publish(SequenceState& sequence, const SampledToken& token, Reason reason,
                     StopReason stop_reason) {
    GenerationHandle::State& state = *sequence.request->state;
    const std::lock_guard lock(state.mutex);
    GenerationOutput& output = state.outputs[sequence.index].all;
    time_token(sequence);
    ++state.metrics.num_generated_tokens;
    output.generated_log_probs.push_back(token.log_prob);
    if (sequence.request->config().logprobs > 0)
        output.top_log_probs.push_back(sequence.sampler.top_log_probs());
    output.generated_ids.push_back(token.id);  // last: read() goes by their number
    output.score += token.log_prob;
    output.finish_reason = reason;
    output.stop_reason = std::move(stop_reason);
}

void Output::count_drafts(SequenceState& sequence, size_t num_drafted, size_t num_accepted) {
    m_step.num_drafted_tokens += num_drafted;
    m_step.num_accepted_tokens += num_accepted;
    GenerationHandle::State& state = *sequence.request->state;
    const std::lock_guard lock(state.mutex);
    state.metrics.num_drafted_tokens += num_drafted;
    state.metrics.num_accepted_tokens += num_accepted;
}

void Output::finish(SequenceState& sequence, const GrammarEnd& end) {
    m_notifications.add(*sequence.request);
    GenerationHandle::State& state = *sequence.request->state;
    const std::lock_guard lock(state.mutex);
    GenerationOutput& output = state.outputs[sequence.index].all;
    output.finish_reason = end.is_whole ? Reason::STOP : Reason::ERROR;
    if (!end.is_whole) output.stop_reason = end.what();
}

void Output::time_token(SequenceState& sequence) {
    const auto now = Clock::now();
    const Request& request = *sequence.request;
    PerfMetrics& metrics = request.state->metrics;
    RawPerfMetrics& raw = metrics.raw_metrics;
    if (raw.m_times_to_first_token.empty())
        raw.m_times_to_first_token.push_back(microseconds_since(request.arrival));
    metrics.num_prefix_cache_hit_tokens = request.sequences[0]->num_prefix_hits;
    raw.m_new_token_times.push_back(
        std::chrono::duration<double, std::micro>(now.time_since_epoch()).count());
    if (sequence.num_new_tokens++ == 0) m_timed.push_back(&sequence);
}

void Output::time_step(SequenceState& sequence) {
    const size_t count = std::exchange(sequence.num_new_tokens, 0);
    if (count == 0) return;
    const auto now = Clock::now();
    const auto before = std::exchange(sequence.latest_token, now);
    if (before == Clock::time_point()) return;
    const float duration = std::chrono::duration<float, std::micro>(now - before).count();
    std::vector<float>& durations = sequence.request->state->metrics.raw_metrics.m_durations;
    durations.insert(durations.end(), count, duration / float(count));
}

void Output::finish_step() {
    for (SequenceState* sequence : m_timed) {
        const std::lock_guard lock(sequence->request->state->mutex);
        time_step(*sequence);
    }
    m_timed.clear();
}

void Output::time_queue(const Request& request) {
    const std::lock_guard lock(request.state->mutex);
    request.state->metrics.raw_metrics.queue_durations.push_back(
        microseconds_since(request.arrival));
}

void Output::append_prompt_log_probs(SequenceState& sequence, PromptLogProbs&& log_probs) {
    GenerationHandle::State& state = *sequence.request->state;
    const std::lock_guard lock(state.mutex);
    GenerationOutput& all = state.outputs[sequence.index].all;
    all.prompt_log_probs.insert(all.prompt_log_probs.end(), log_probs.tokens.begin(),
                                log_probs.tokens.end());
    all.prompt_top_log_probs.insert(all.prompt_top_log_probs.end(),
                                    std::make_move_iterator(log_probs.top.begin()),
                                    std::make_move_iterator(log_probs.top.end()));
}

void Output::advance_beams(Request& request, size_t num_tokens) {
    m_step.num_generated_tokens += num_tokens;
    const std::lock_guard lock(request.state->mutex);
    time_token(*request.sequences.front());
}

bool Output::completes_stop_string(const SequenceState& beam, int64_t token) {
    return timed(m_step.text_time, [&] {
        GeneratedText text = *beam.beam_text;
        text.append(token);
        return text.stopped();
    });
}

void Output::append_to_beam(SequenceState& beam, int64_t token) {
    if (!beam.beam_text) return;
    timed(m_step.text_time, [&] { return beam.beam_text->append(token); });
}

void Output::publish_beams(Request& request, std::vector<SequenceText> texts) {
    std::vector<Hypothesis> found = request.beams->best();
    GenerationHandle::State& state = *request.state;
    const std::lock_guard text_lock(state.text_mutex);
    const std::lock_guard lock(state.mutex);
    // Fewer than were asked for if there are not so many; an ended request has at least one.
    if (found.empty()) found.emplace_back();
    texts.resize(found.size(), texts.front());
    state.texts = std::move(texts);
    state.outputs.resize(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
        GenerationOutput& output = state.outputs[i].all;
        state.metrics.num_generated_tokens += found[i].tokens.size();
        output.generated_ids = std::move(found[i].tokens);
        output.generated_log_probs = std::move(found[i].log_probs);
        output.top_log_probs = std::move(found[i].top_log_probs);
        output.score = found[i].score;
        output.finish_reason = found[i].finish_reason;
        if (output.finish_reason == Reason::STOP)
            output.stop_reason = beam_stop_reason(request.config(), output, state.texts[i]);
    }
}

void Output::end(Request& request, GenerationStatus status, Reason reason,
                 const std::optional<Error>& error) {
    m_notifications.add(request);
    GenerationHandle::State& state = *request.state;
    state.request = nullptr;
    const std::lock_guard lock(state.mutex);
    for (const auto& sequence : request.sequences) time_step(*sequence);
    state.status = status;
    state.error = error;
    if (reason == Reason::NONE) return;
    for (SequenceOutput& output : state.outputs)
        if (output.all.finish_reason == Reason::NONE) output.all.finish_reason = reason;
}

}  // namespace pagewheel
