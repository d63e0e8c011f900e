#include "runtime/engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "check.hpp"
#include "kernels/logits.hpp"

namespace pagewheel {
namespace {

constexpr size_t usage_window = 1000;
// Where a model does not state its context, the cache is sized for sequences of this many tokens.
constexpr size_t presumed_context = 8192;

SequenceRecord& record_of(const BatchEntry& entry) {
    return *static_cast<SequenceRecord*>(entry.sequence->owner);
}

size_t num_blocks(const CacheGeometry& geometry, const SchedulerConfig& config,
                  const ModelLimits& limits) {
    const size_t context = limits.context_length ? limits.context_length : presumed_context;
    return choose_num_blocks(geometry, config.num_kv_blocks, config.cache_size << 30,
                             config.max_num_seqs * geometry.blocks_for(context));
}

}  // namespace

Engine::Engine(std::unique_ptr<ModelRunner> runner, const SchedulerConfig& config,
               const ModelLimits& limits, IncrementalDetokenizer::Decode decode)
    : m_runner(std::move(runner)),
      m_limits(limits),
      m_scheduler(config, num_blocks(m_runner->geometry(), config, limits),
                  m_runner->geometry().block_size),
      m_decode(std::move(decode)) {
    m_runner->allocate_cache(m_scheduler.pool().size());
    if (config.use_cache_eviction) {
        m_keeper =
            std::make_unique<CacheKeeper>(config.cache_eviction_config, *m_runner, m_scheduler);
        check_argument(m_scheduler.pool().size() >= m_keeper->most_blocks(), "the KV cache has ",
                       m_scheduler.pool().size(), " blocks; eviction with max_cache_size ",
                       config.cache_eviction_config.get_max_cache_size(), " needs at least ",
                       m_keeper->most_blocks());
    }
    m_metrics.cache_size_in_bytes = m_metrics.kv_cache_size_in_bytes =
        m_scheduler.pool().size() * m_runner->geometry().block_bytes;
}

std::shared_ptr<GenerationHandle::State> Engine::submit(uint64_t id,
                                                        const std::vector<int64_t>& prompt,
                                                        const GenerationConfig& config) {
    config.validate();
    check_prompt(prompt, config);
    auto request = std::make_unique<Request>();
    request->id = id;
    request->config = config;
    request->max_tokens = max_tokens(prompt.size(), config);
    request->arrival = Clock::now();
    request->state = std::make_shared<GenerationHandle::State>();
    request->state->outputs.resize(config.num_return_sequences);
    request->state->num_read.resize(config.num_return_sequences);
    request->state->metrics.num_input_tokens = prompt.size();
    request->records.push_back(make_record(*request, 0, prompt));

    const auto state = request->state;
    const std::lock_guard lock(m_mutex);
    check_argument(m_ids.insert(id).second, "request_id ", id, " is in use");
    m_submitted.push_back(std::move(request));
    return state;
}

void Engine::check_prompt(const std::vector<int64_t>& prompt,
                          const GenerationConfig& config) const {
    check_argument(!prompt.empty(), "the prompt is empty: at least one token is needed");
    for (int64_t token : prompt)
        check_argument(token >= 0 && size_t(token) < m_limits.vocabulary,
                       "the prompt has token id ", token, ", outside of [0, ", m_limits.vocabulary,
                       ")");
    const auto check_fits = [&](size_t limit, const char* what) {
        check_argument(prompt.size() < limit, "the prompt has ", prompt.size(), " tokens; ", what,
                       " ", limit, ", of which at least one is to be generated");
    };
    const bool in_chunks = m_keeper && m_keeper->config().evict_during_prefill;
    if (m_limits.context_length != 0 && !in_chunks)
        check_fits(m_limits.context_length, "the model's context holds");
    // With eviction a block is spare, for copies of shared ones.
    const size_t spare = m_keeper ? m_runner->geometry().block_size : 0;
    if (!in_chunks) check_fits(m_scheduler.max_tokens() - spare, "the KV cache holds");
    if (config.max_new_tokens == GenerationConfig::unlimited)
        check_fits(config.max_length, "max_length is");
}

size_t Engine::max_tokens(size_t prompt_length, const GenerationConfig& config) const {
    // With eviction a sequence that is told where to end may outgrow the cache and the context.
    const bool endless = m_keeper && (config.max_new_tokens != GenerationConfig::unlimited ||
                                      config.max_length != GenerationConfig::unlimited);
    size_t limit = m_keeper ? GenerationConfig::unlimited : m_scheduler.max_tokens();
    if (!endless && m_limits.context_length != 0) limit = std::min(limit, m_limits.context_length);
    if (config.max_new_tokens == GenerationConfig::unlimited)
        return std::min(limit, config.max_length);
    return config.max_new_tokens < limit - prompt_length ? prompt_length + config.max_new_tokens
                                                         : limit;
}

std::unique_ptr<SequenceRecord> Engine::make_record(Request& request, size_t index,
                                                    const std::vector<int64_t>& prompt) const {
    const GenerationConfig& config = request.config;
    auto record = std::make_unique<SequenceRecord>(
        SequenceRecord{&request, index, Sequence(), Sampler(config, prompt, index, detected_isa()),
                       IncrementalDetokenizer(m_decode),
                       StopStrings(config.stop_strings, config.include_stop_str_in_output)});
    record->sequence.tokens = prompt;
    record->sequence.prompt_length = prompt.size();
    record->sequence.wants_prompt_logits = config.echo && config.logprobs > 0 && index == 0;
    record->sequence.prefix_key.salt = config.cache_salt;
    record->sequence.owner = record.get();
    record->sequence.eviction = &record->eviction;
    if (m_keeper) m_keeper->admit(record->sequence, request.max_tokens);
    return record;
}

bool Engine::has_work() const {
    const std::lock_guard lock(m_mutex);
    return !m_ids.empty();
}

void Engine::step() {
    accept_submitted();
    honour_wishes();
    const Batch& batch = m_scheduler.schedule();
    m_latest_step = {};
    m_latest_step.num_sequences = batch.entries.size();
    try {
        if (!batch.empty()) compute(batch);
    } catch (...) {
        for (const BatchEntry& entry : batch.entries) {
            Request& request = *record_of(entry).request;
            for (auto& record : request.records) m_scheduler.discard(record->sequence);
            end(request, GenerationStatus::CANCEL);
        }
        forget_ended();
        throw;
    }
    forget_ended();
    update_metrics();
}

void Engine::compute(const Batch& batch) {
    const auto begin = Clock::now();
    const Logits logits =
        m_keeper ? m_runner->run(batch, m_keeper->windows(batch)) : m_runner->run(batch);
    m_latest_step.infer_time = microseconds_since(begin);
    m_scheduler.advance();
    if (m_keeper) m_keeper->observe(batch);
    const auto sampling = Clock::now();
    sample(batch, logits);
    if (m_keeper) evict(batch);
    m_latest_step.sampling_time = microseconds_since(sampling);
}

void Engine::evict(const Batch& batch) {
    for (const BatchEntry& entry : batch.entries) {
        Request& request = *record_of(entry).request;
        try {
            for (size_t i = 0; i < request.records.size() && !request.ended; ++i)
                m_keeper->evict(request.records[i]->sequence);
        } catch (const std::exception& error) {
            {
                const std::lock_guard lock(request.state->mutex);
                request.state->error = concat("the eviction policy failed: ", error.what());
            }
            end(request, GenerationStatus::CANCEL);
        }
    }
}

void Engine::accept_submitted() {
    std::vector<std::unique_ptr<Request>> submitted;
    {
        const std::lock_guard lock(m_mutex);
        submitted.swap(m_submitted);
    }
    for (auto& request : submitted) {
        m_scheduler.add(request->records.front()->sequence);
        m_requests.push_back(std::move(request));
    }
}

void Engine::honour_wishes() {
    for (auto& request : m_requests) {
        if (request->state->cancel_wanted)
            end(*request, GenerationStatus::CANCEL);
        else if (request->state->stop_wanted)
            end(*request, GenerationStatus::STOP);
    }
}

void Engine::sample(const Batch& batch, const Logits& logits) {
    size_t row = 0;
    for (const BatchEntry& entry : batch.entries) {
        if (entry.num_logits == 0) continue;
        SequenceRecord& record = record_of(entry);
        const size_t first_row = std::exchange(row, row + entry.num_logits);
        if (record.sequence.wants_prompt_logits)
            record_prompt(record, logits, first_row, entry.num_logits);
        if (!entry.samples) continue;
        float* values = logits.row(row - 1);
        std::vector<float> unchanged;  // the sampler writes its penalties into the row
        const bool has_siblings =
            record.request->records.size() < record.request->state->outputs.size();
        if (has_siblings) unchanged.assign(values, values + logits.vocabulary);
        append_token(record, values);
        if (has_siblings) fork_siblings(record, unchanged);
    }
}

void Engine::record_prompt(SequenceRecord& record, const Logits& logits, size_t first_row,
                           size_t num_rows) {
    const Sequence& sequence = record.sequence;
    const std::lock_guard lock(record.request->state->mutex);
    std::vector<float>& log_probs = record.request->state->outputs[record.index].prompt_log_probs;
    for (size_t i = 0; i < num_rows; ++i) {
        // The row of token p predicts token p + 1. After a preemption rows come again.
        const size_t next = sequence.num_cached - num_rows + i + 1;
        if (next >= sequence.prompt_length || next != log_probs.size() + 1) continue;
        const float* values = logits.row(first_row + i);
        const float best = values[kernels::argmax(values, logits.vocabulary, detected_isa())];
        const double total =
            kernels::sum_exp(values, logits.vocabulary, best, 1.0f, detected_isa());
        log_probs.push_back(float(double(values[sequence.tokens[next]] - best) - std::log(total)));
    }
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
    const SampledToken token = record.sampler.sample(logits, m_limits.vocabulary);
    record.sequence.tokens.push_back(token.id);
    ++m_latest_step.num_generated_tokens;
    const GenerationFinishReason reason = finish_reason(record, token.id);
    publish(record, token, reason);
    if (reason != GenerationFinishReason::NONE) finish(record);
}

GenerationFinishReason Engine::finish_reason(SequenceRecord& record, int64_t token) const {
    const GenerationConfig& config = record.request->config;
    if (!config.ignore_eos && config.is_stop_token(token)) return GenerationFinishReason::STOP;
    if (!record.stop_strings.empty()) {
        record.stop_strings.feed(record.detokenizer.append(token));
        if (record.stop_strings.matched()) return GenerationFinishReason::STOP;
    }
    return record.sequence.tokens.size() >= record.request->max_tokens
               ? GenerationFinishReason::LENGTH
               : GenerationFinishReason::NONE;
}

void Engine::publish(SequenceRecord& record, const SampledToken& token,
                     GenerationFinishReason reason) {
    const auto now = Clock::now();
    GenerationHandle::State& state = *record.request->state;
    const std::lock_guard lock(state.mutex);
    GenerationOutput& output = state.outputs[record.index];
    RawPerfMetrics& raw = state.metrics.raw_metrics;
    if (raw.m_times_to_first_token.empty())
        raw.m_times_to_first_token.push_back(microseconds_since(record.request->arrival));
    if (!output.generated_ids.empty())
        raw.m_durations.push_back(
            std::chrono::duration<float, std::micro>(now - record.latest_token).count());
    state.metrics.num_prefix_cache_hit_tokens =
        record.request->records[0]->sequence.num_prefix_hits;
    raw.m_new_token_times.push_back(
        std::chrono::duration<double, std::micro>(now.time_since_epoch()).count());
    record.latest_token = now;
    ++state.metrics.num_generated_tokens;

    output.generated_ids.push_back(token.id);
    output.generated_log_probs.push_back(token.log_prob);
    output.score += token.log_prob;
    output.finish_reason = reason;
}

void Engine::finish(SequenceRecord& record) {
    m_scheduler.remove(record.sequence);
    record.finished = true;
    const auto& records = record.request->records;
    const bool all = records.size() == record.request->state->outputs.size() &&
                     std::all_of(records.begin(), records.end(),
                                 [](const auto& other) { return other->finished; });
    if (all) end(*record.request, GenerationStatus::FINISHED);
}

void Engine::end(Request& request, GenerationStatus status) {
    if (std::exchange(request.ended, true)) return;
    for (auto& record : request.records) m_scheduler.remove(record->sequence);
    const std::lock_guard lock(request.state->mutex);
    request.state->status = status;
}

void Engine::forget_ended() {
    const auto ended = std::stable_partition(m_requests.begin(), m_requests.end(),
                                             [](const auto& request) { return !request->ended; });
    const std::lock_guard lock(m_mutex);
    for (auto request = ended; request != m_requests.end(); ++request) m_ids.erase((*request)->id);
    m_requests.erase(ended, m_requests.end());
}

void Engine::update_metrics() {
    const BlockPool& pool = m_scheduler.pool();
    const float usage = 100.0f * float(pool.num_held()) / float(pool.size());
    if (m_usage.size() < usage_window)
        m_usage.push_back(usage);
    else
        m_usage[m_num_steps % usage_window] = usage;
    ++m_num_steps;
#ifndef NDEBUG
    m_scheduler.store().check_integrity();
#endif
    const std::lock_guard lock(m_mutex);
    m_metrics.scheduled_requests = m_latest_step.num_sequences;
    m_metrics.cache_usage = usage;
    m_metrics.max_cache_usage = std::max(m_metrics.max_cache_usage, usage);
    m_metrics.avg_cache_usage =
        std::accumulate(m_usage.begin(), m_usage.end(), 0.0f) / float(m_usage.size());
    m_metrics.preemptions = m_scheduler.totals().num_preemptions;
    m_metrics.prompt_tokens = m_scheduler.totals().num_prompt_tokens;
    m_metrics.prefix_cache_hit_tokens = m_scheduler.totals().num_prefix_hits;
    m_metrics.prefix_cache_usage =
        100.0f * float(m_scheduler.store().tree().size()) / float(pool.size());
}

PipelineMetrics Engine::metrics() const {
    const std::lock_guard lock(m_mutex);
    PipelineMetrics metrics = m_metrics;
    metrics.requests = m_ids.size();
    return metrics;
}

}  // namespace pagewheel
