#include "runtime/engine.hpp"

#include <algorithm>
#include <exception>
#include <iostream>

#include "cache/cache_size.hpp"
#include "check.hpp"

namespace pagewheel {
namespace {

constexpr size_t usage_window = 1000;
// Where a model does not state its context, the cache is sized for sequences of this many tokens.
constexpr size_t presumed_context = 8192;
// Steps between two looks at whether memory can be given back, while there are requests.
constexpr size_t memory_interval = 64;

Request* request_of(const BatchEntry& entry) {
    return static_cast<SequenceRecord*>(entry.sequence->owner)->request;
}

size_t num_blocks(const Model& model, const SchedulerConfig& config, const ModelLimits& limits) {
    const size_t context = limits.context_length ? limits.context_length : presumed_context;
    return choose_num_blocks(model.block_bytes(), config.num_kv_blocks, config.cache_size << 30,
                             double(config.memory_fraction),
                             config.max_num_seqs * blocks_for(context, model.block_size()));
}

}  // namespace

Engine::Engine(std::unique_ptr<Model> model, const SchedulerConfig& config,
               const ModelLimits& limits, GeneratedText::Decoders decoders)
    : m_inbox(std::make_shared<Inbox>(config.max_queue)),
      m_model(std::move(model)),
      m_limits(limits),
      m_statistics_interval(config.statistics_interval),
      m_has_prefixes(config.enable_prefix_caching),
      m_decoders(std::move(decoders)),
      m_scheduler(config, num_blocks(*m_model, config, limits), m_model->block_size()) {
    m_max_tokens = m_scheduler.max_tokens();
    m_model->allocate_cache(m_scheduler.pool().size());
    if (config.use_cache_eviction) {
        m_keeper =
            std::make_unique<CacheKeeper>(config.cache_eviction_config, *m_model, m_scheduler);
        check_argument(m_scheduler.pool().size() >= m_keeper->most_blocks(), "the KV cache has ",
                       m_scheduler.pool().size(), " blocks; eviction with max_cache_size ",
                       config.cache_eviction_config.get_max_cache_size(), " needs at least ",
                       m_keeper->most_blocks());
    }
    m_metrics.cache_size_in_bytes = m_metrics.kv_cache_size_in_bytes =
        m_scheduler.pool().size() * m_model->block_bytes();
    m_statistics.num_blocks = m_statistics.num_free_blocks = m_scheduler.pool().size();
}

Engine::~Engine() {
    accept_submitted();
    for (const auto& request : m_requests) end(*request, GenerationStatus::CANCEL);
    m_inbox->close();
    try {
        wake(take_news());
    } catch (...) {  // what a callback throws has nowhere to go from here
    }
}

Engine::StepLock::StepLock(Engine& engine)
    : m_lock(checked_mutex(engine)), m_role(*engine.m_inbox, ThreadRole::Kind::STEP) {
    engine.m_inbox->check_works();
}

std::mutex& Engine::StepLock::checked_mutex(Engine& engine) {
    engine.m_inbox->check_process();
    if (ThreadRole::is(*engine.m_inbox, ThreadRole::Kind::STEP))
        throw std::runtime_error(
            "this cannot be done from an eviction policy: the pipeline is in the step that asks "
            "it");
    return engine.m_step_mutex;
}

StepStatistics Engine::step() {
    StepStatistics made;
    std::exception_ptr failure;
    States news;
    {
        const StepLock lock(*this);
        failure = make_step();
        made = m_step;
        news = take_news();
    }
    const ThreadRole role(*m_inbox, ThreadRole::Kind::CALLER);
    wake(news);
    if (failure) std::rethrow_exception(failure);
    return made;
}

std::exception_ptr Engine::make_step() {
    try {
        return attempt_step();
    } catch (const std::exception& error) {
        fail(error.what());
        return std::current_exception();
    } catch (...) {
        fail("an unknown error");
        return std::current_exception();
    }
}

std::exception_ptr Engine::attempt_step() {
    m_step = {};
    accept_submitted();
    honour_wishes();
    honour_deadlines();
    const auto scheduling = Clock::now();
    const Batch& batch = m_scheduler.schedule();
    m_step.schedule_time = microseconds_since(scheduling);
    m_step.num_sequences = batch.entries.size();
    m_step.num_tokens = batch.num_tokens;
    for (const BatchEntry& entry : batch.entries) begin(*request_of(entry));
    const std::exception_ptr failure = batch.empty() ? nullptr : compute(batch);
    forget_ended();
#ifndef NDEBUG
    m_scheduler.store().check_integrity();
#endif
    count_blocks();
    record_step();
    if (m_requests.empty() || m_statistics.num_steps % memory_interval == 0) give_back_memory();
    return failure;
}

std::exception_ptr Engine::compute(const Batch& batch) {
    const std::vector<size_t> none;
    const std::vector<size_t>& windows = m_keeper ? m_keeper->windows(batch) : none;
    Logits logits;
    if (auto failure = attempt(batch, [&] { logits = m_model->run(batch, windows); }))
        return failure;
    m_step.fill_time = m_model->times().fill;
    m_step.infer_time = m_model->times().infer;
    const auto advancing = Clock::now();
    m_scheduler.advance();
    m_step.schedule_time += microseconds_since(advancing);
    if (m_keeper) m_keeper->observe(batch);
    const auto sampling = Clock::now();
    const auto failure = attempt(batch, [&] { sample(batch, logits); });
    if (m_keeper && !failure) evict(batch);
    m_step.sampling_time = microseconds_since(sampling);
    return failure;
}

template <class Work>
std::exception_ptr Engine::attempt(const Batch& batch, Work&& work) {
    try {
        work();
        return nullptr;
    } catch (const std::exception& error) {
        const std::exception_ptr failure = std::current_exception();
        cancel_batch(batch, error.what());
        return failure;
    } catch (...) {
        const std::exception_ptr failure = std::current_exception();
        cancel_batch(batch, "an unknown error");
        return failure;
    }
}

void Engine::evict(const Batch& batch) {
    for (const BatchEntry& entry : batch.entries) {
        Request& request = *request_of(entry);
        try {
            for (size_t i = 0; i < request.records.size() && !request.ended; ++i)
                m_keeper->evict(request.records[i]->sequence);
        } catch (const PolicyError& error) {
            end(request, GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                concat("the eviction policy failed: ", error.what()));
        }
    }
}

void Engine::cancel_batch(const Batch& batch, const std::string& error) {
    for (const BatchEntry& entry : batch.entries)
        cancel(*request_of(entry), "the request was cancelled because a step failed: " + error);
}

void Engine::cancel(Request& request, const std::string& error) {
    for (auto& record : request.records) m_scheduler.discard(record->sequence);
    end(request, GenerationStatus::CANCEL, GenerationFinishReason::NONE, error);
}

void Engine::count_blocks() {
    const BlockPool& pool = m_scheduler.pool();
    const size_t num_pinned = m_scheduler.pins().num_held_by_pins_alone();
    const std::lock_guard lock(m_statistics_mutex);
    m_statistics.num_used_blocks = pool.num_held() - num_pinned;
    m_statistics.num_cached_blocks = pool.num_idle() + num_pinned;
    m_statistics.num_free_blocks = pool.num_free();
    m_metrics.cache_usage = 100.0f * float(m_statistics.num_used_blocks) / float(pool.size());
    m_metrics.prefix_cache_usage =
        100.0f * float(m_scheduler.store().tree().size()) / float(pool.size());
}

void Engine::record_step() {
    const SchedulerTotals& totals = m_scheduler.totals();
    const std::lock_guard lock(m_statistics_mutex);
    PipelineStatistics& all = m_statistics;
    const float usage = m_metrics.cache_usage;
    const size_t at = all.num_steps % usage_window;
    if (m_usage.size() == at) m_usage.push_back(0);
    m_usage_sum += double(usage) - double(std::exchange(m_usage[at], usage));
    ++all.num_steps;
    all.num_queued = m_inbox->num_queued();
    all.num_running = m_scheduler.num_running();
    all.num_preempted = m_scheduler.num_preempted();
    all.latest_step = m_step;
    all.all_steps += m_step;
    all.num_preemptions = m_metrics.preemptions = totals.num_preemptions;
    all.num_prompt_tokens = m_metrics.prompt_tokens = totals.num_prompt_tokens;
    all.num_prefix_cache_hit_tokens = m_metrics.prefix_cache_hit_tokens = totals.num_prefix_hits;
    m_metrics.scheduled_requests = m_step.num_sequences;
    m_metrics.max_cache_usage = std::max(m_metrics.max_cache_usage, usage);
    m_metrics.avg_cache_usage = float(m_usage_sum / double(m_usage.size()));
    if (m_statistics_interval != 0 && all.num_steps % m_statistics_interval == 0)
        std::cerr << "pagewheel " + all.to_string() + "\n";
}

void Engine::give_back_memory() {
    const auto unused = m_scheduler.unused_memory(m_model->block_bytes());
    for (const BlockRange& range : unused) m_model->cache().give_back(range);
}

bool Engine::has_work() const {
    m_inbox->check_process();
    return m_inbox->num_requests() > 0;
}

PipelineMetrics Engine::metrics() const {
    m_inbox->check_process();
    const std::lock_guard lock(m_statistics_mutex);
    PipelineMetrics metrics = m_metrics;
    metrics.requests = m_inbox->num_requests();
    return metrics;
}

PipelineStatistics Engine::statistics() const {
    m_inbox->check_process();
    const std::lock_guard lock(m_statistics_mutex);
    PipelineStatistics statistics = m_statistics;
    statistics.num_queued = m_inbox->num_queued();
    return statistics;
}

}  // namespace pagewheel
