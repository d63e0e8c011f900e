// From logits to what the caller reads.
#include <cmath>
#include <utility>

#include "check.hpp"
#include "kernels/logits.hpp"
#include "runtime/engine.hpp"

namespace pagewheel {

void Engine::sample(const Batch& batch, const Logits& logits) {
    size_t row = 0;
    for (const BatchEntry& entry : batch.entries) {
        if (entry.num_logits == 0) continue;
        SequenceRecord& record = *static_cast<SequenceRecord*>(entry.sequence->owner);
        const size_t first_row = std::exchange(row, row + entry.num_logits);
        if (record.request->ended) continue;
        try {
            if (record.sequence.wants_prompt_logits)
                record_prompt(record, logits, first_row, entry.num_logits);
            if (entry.samples) continue_sequence(record, logits.row(row - 1));
        } catch (const LogitsError& error) {
            cancel(*record.request, concat("the request was cancelled: ", error.what()));
        }
    }
}

void Engine::continue_sequence(SequenceRecord& record, float* logits) {
    if (record.request->config.is_beam_search()) return score_beam(record, logits);
    std::vector<float> unchanged;  // the sampler writes its penalties into the row
    const bool has_siblings =
        record.request->records.size() < record.request->state->outputs.size();
    if (has_siblings) unchanged.assign(logits, logits + m_model->vocabulary());
    append_token(record, logits);
    if (has_siblings) fork_siblings(record, unchanged);
}

void Engine::record_prompt(SequenceRecord& record, const Logits& logits, size_t first_row,
                           size_t num_rows) {
    const Sequence& sequence = record.sequence;
    // Written by this thread alone, so that it may be read without the lock.
    std::vector<float>& all = record.request->state->outputs[record.index].prompt_log_probs;
    std::vector<float> fresh;
    for (size_t i = 0; i < num_rows; ++i) {
        // The row of token p predicts token p + 1. After a preemption rows come again.
        const size_t next = sequence.num_cached - num_rows + i + 1;
        if (next >= sequence.prompt_length || next != all.size() + fresh.size() + 1) continue;
        const float* values = logits.row(first_row + i);
        const float best = values[find_best_token(values, logits.vocabulary, detected_isa())];
        const double total =
            kernels::sum_exp(values, logits.vocabulary, best, 1.0f, detected_isa());
        fresh.push_back(float(double(values[sequence.tokens[next]] - best) - std::log(total)));
    }
    const std::lock_guard lock(record.request->state->mutex);
    all.insert(all.end(), fresh.begin(), fresh.end());
}

void Engine::fork_siblings(SequenceRecord& first, const std::vector<float>& logits) {
    Request& request = *first.request;
    const auto& tokens = first.sequence.tokens;
    const std::vector<int64_t> prompt(tokens.begin(),
                                      tokens.begin() + first.sequence.prompt_length);
    for (size_t i = 1; i < request.config.num_return_sequences; ++i) {
        request.records.push_back(make_record(request, i, prompt));
        SequenceRecord& sibling = *request.records.back();
        if (first.finished)  // it holds no blocks any more: the sibling computes its own prompt
            m_scheduler.add(sibling.sequence);
        else
            m_scheduler.fork(first.sequence, sibling.sequence);
        if (m_keeper && !first.finished) m_keeper->fork(first.sequence, sibling.sequence);
        std::vector<float> row = logits;
        append_token(sibling, row.data());
    }
}

void Engine::append_token(SequenceRecord& record, float* logits) {
    const SampledToken token = record.sampler.sample(
        {record.sequence.tokens, record.sequence.prompt_length}, logits, m_model->vocabulary());
    record.sequence.tokens.push_back(token.id);
    ++m_step.num_generated_tokens;
    const GenerationFinishReason reason = finish_reason(record, token.id);
    publish(record, token, reason);
    if (reason != GenerationFinishReason::NONE) finish(record);
}

GenerationFinishReason Engine::finish_reason(SequenceRecord& record, int64_t token) {
    const GenerationConfig& config = record.request->config;
    if (!config.ignore_eos && config.is_stop_token(token)) return GenerationFinishReason::STOP;
    if (!config.stop_strings.empty()) {
        const auto begin = Clock::now();
        record.text.append(token);
        m_step.text_time += microseconds_since(begin);
        if (record.text.stopped()) return GenerationFinishReason::STOP;
    }
    return record.sequence.tokens.size() >= record.request->max_tokens
               ? GenerationFinishReason::LENGTH
               : GenerationFinishReason::NONE;
}

void Engine::publish(SequenceRecord& record, const SampledToken& token,
                     GenerationFinishReason reason) {
    GenerationHandle::State& state = *record.request->state;
    announce(*record.request);
    const std::lock_guard lock(state.mutex);
    GenerationOutput& output = state.outputs[record.index];
    time_token(record, output.generated_ids.empty());
    ++state.metrics.num_generated_tokens;

    output.generated_ids.push_back(token.id);
    output.generated_log_probs.push_back(token.log_prob);
    output.score += token.log_prob;
    output.finish_reason = reason;
}

void Engine::time_token(SequenceRecord& record, bool is_first) {
    const auto now = Clock::now();
    PerfMetrics& metrics = record.request->state->metrics;
    RawPerfMetrics& raw = metrics.raw_metrics;
    if (raw.m_times_to_first_token.empty())
        raw.m_times_to_first_token.push_back(microseconds_since(record.request->arrival));
    if (!is_first)
        raw.m_durations.push_back(
            std::chrono::duration<float, std::micro>(now - record.latest_token).count());
    metrics.num_prefix_cache_hit_tokens = record.request->records[0]->sequence.num_prefix_hits;
    raw.m_new_token_times.push_back(
        std::chrono::duration<double, std::micro>(now.time_since_epoch()).count());
    record.latest_token = now;
}

}  // namespace pagewheel
