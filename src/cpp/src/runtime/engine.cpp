#include "runtime/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "cache/cache_size.hpp"
#include "kernels/paged_attention.hpp"
#include "pagewheel/errors.hpp"
#include "runtime/head_drafter.hpp"
#include "runtime/model_drafter.hpp"
#include "runtime/suffix_drafter.hpp"

namespace pagewheel {
namespace {

// Where a model does not state its context, the cache is sized for sequences of this many tokens.
constexpr size_t presumed_context = 8192;
// Steps between two looks at whether memory can be given back, while there are requests.
constexpr size_t memory_interval = 64;

Request& request_of(const BatchEntry& entry) {
    return *state_of(*entry.sequence).request;
}

/// Blocks and bytes of a draft model's cache that holds the tokens of `num_blocks`; 0: there is
/// none.
size_t num_draft_blocks(const Model& model, const Model* draft_model, size_t num_blocks) {
    return draft_model ? blocks_for(num_blocks * model.block_size(), draft_model->block_size()) : 0;
}
size_t draft_bytes(const Model& model, const Model* draft_model, size_t num_blocks) {
    const size_t count = num_draft_blocks(model, draft_model, num_blocks);
    return draft_model ? count * draft_model->block_bytes() : 0;
}

/// Both caches hold as many tokens, in the memory that the config allows.
size_t num_blocks(const Model& model, const Model* draft_model, const SchedulerConfig& config,
                  size_t context_length) {
    const size_t context = context_length ? context_length : presumed_context;
    return choose_num_blocks(
        model.block_bytes() + draft_bytes(model, draft_model, 1), config.num_kv_blocks,
        config.cache_size << 30, double(config.memory_fraction),
        config.max_num_seqs * (blocks_for(context, model.block_size()) + model.blocks_per_state()));
}

/// Warns where memory decided the cache's size, and a sequence cannot be as long as the model
/// allows.
void warn_of_short_cache(const SchedulerConfig& config, size_t max_tokens, size_t context_length) {
    const bool asked = config.num_kv_blocks != 0 || config.cache_size != 0;
    if (asked || max_tokens >= context_length) return;
    log(LogLevel::WARNING,
        concat("the KV cache holds ", max_tokens, " tokens, which is memory_fraction ",
               config.memory_fraction, " of the free memory; the model's context is ",
               context_length, " tokens. cache_size or num_kv_blocks sets another size"));
}

Model& with_cache(Model& model, size_t num_blocks) {
    model.allocate_cache(num_blocks);
    return model;
}

/// Null if nothing is evicted. The model has its cache.
std::unique_ptr<EvictionManager> make_eviction(const SchedulerConfig& config, Model& model,
                                               Scheduler& scheduler, size_t context_length) {
    if (!config.use_cache_eviction) return nullptr;
    auto eviction = std::make_unique<EvictionManager>(config.cache_eviction_config, model,
                                                      scheduler, context_length);
    const size_t needed = eviction->most_blocks() + model.blocks_per_state();
    check_argument(scheduler.pool().size() >= needed, "the KV cache has ", scheduler.pool().size(),
                   " blocks; eviction with max_cache_size ",
                   config.cache_eviction_config.get_max_cache_size(), " needs at least ", needed);
    return eviction;
}

/// The longest span of a sequence alone in its step whose tokens have the bits of single steps.
size_t longest_exact_span(const Model& model) {
    return std::min(model.most_exact_rows(), kernels::short_span_tokens);
}

/// Calls `handle` with the message of the exception that is being handled.
template <class Handle>
void with_message(Handle&& handle) {
    try {
        throw;
    } catch (const std::exception& error) {
        handle(error.what());
    } catch (...) {
        handle("an unknown error");
    }
}

}  // namespace

Engine::Engine(EngineParts parts, const SchedulerConfig& config)
    : m_queue(std::make_shared<RequestQueue>(config.max_queue)),
      m_model(std::move(parts.model)),
      m_has_prefixes(config.enable_prefix_caching),
      m_now(parts.now),
      m_scheduler(config,
                  num_blocks(*m_model, parts.draft_model.get(), config, parts.context_length),
                  m_model->block_size(), m_model->blocks_per_state(), longest_exact_span(*m_model)),
      m_eviction(make_eviction(config, with_cache(*m_model, m_scheduler.pool().size()), m_scheduler,
                               parts.context_length)),
      m_output(m_step),
      m_admission(
          {m_model->vocabulary(), m_model->block_size(), parts.context_length, config.max_num_seqs},
          m_eviction.get(), std::move(parts.decoders), std::move(parts.find_rules),
          std::move(parts.compile_grammar), std::move(parts.encode)),
      m_requests(*m_queue, m_scheduler, m_admission, m_output),
      m_grammars(parts.grammar_limits),
      m_tokens({m_scheduler, m_eviction.get(), m_admission, m_requests, m_output, m_grammars},
               m_model->num_threads()),
      m_recorder(m_scheduler, *m_queue, *m_model,
                 draft_bytes(*m_model, parts.draft_model.get(), m_scheduler.pool().size()),
                 config.statistics_interval) {
    m_admission.set_room(m_scheduler.max_tokens());
    warn_of_short_cache(config, m_scheduler.max_tokens(), parts.context_length);
    m_drafting = make_drafting(parts, config);
}

std::unique_ptr<Drafting> Engine::make_drafting(EngineParts& parts, const SchedulerConfig& config) {
    const bool only_alone = config.speculation == "exact" && !parts.draft_model;
    const bool automatic = config.speculation == "auto" || only_alone || parts.draft_model;
    const size_t blocks =
        num_draft_blocks(*m_model, parts.draft_model.get(), m_scheduler.pool().size());
    if (parts.draft_model && parts.draft_model->reads_hidden_states()) {
        parts.drafter =
            std::make_unique<HeadDrafter>(std::move(parts.draft_model), *m_model, blocks, m_now);
    } else if (parts.draft_model) {
        const ModelDrafter::Limits limits{blocks, parts.draft_context_length, m_model->vocabulary(),
                                          parts.vocabulary_maps};
        parts.drafter =
            std::make_unique<ModelDrafter>(std::move(parts.draft_model), config, limits, m_now);
    }
    if (!parts.drafter) parts.drafter = std::make_unique<SuffixDrafter>(automatic);
    return std::make_unique<Drafting>(
        std::move(parts.drafter),
        DraftLimits{m_model->vocabulary(), automatic, only_alone, m_model->most_exact_rows(),
                    longest_exact_span(*m_model), m_model->blocks_per_state() > 0},
        m_eviction.get(), m_now);
}

Engine::~Engine() {
    accept();
    for (const auto& request : m_requests.all())
        m_requests.end(*request, {GenerationStatus::CANCEL});
    m_queue->close();
    try {
        m_output.take_notifications().notify();
    } catch (...) {  // what a callback throws has nowhere to go from here
    }
}

Engine::StepLock::StepLock(Engine& engine)
    : m_lock(checked_mutex(engine)), m_role(*engine.m_queue, ThreadRole::Kind::STEP) {
    engine.m_queue->check_works();
}

std::mutex& Engine::StepLock::checked_mutex(Engine& engine) {
    engine.m_queue->check_process();
    if (ThreadRole::is(*engine.m_queue, ThreadRole::Kind::STEP))
        throw Error(
            "this cannot be done from an eviction policy or a logits processor: the pipeline is in "
            "the step that asks it",
            ErrorCode::invalid_state);
    return engine.m_step_mutex;
}

std::shared_ptr<GenerationHandle::State> Engine::submit(std::optional<uint64_t> id,
                                                        const std::vector<int64_t>& prompt,
                                                        const GenerationConfig& config) {
    m_queue->check_process();
    auto request = m_admission.make_request(id, prompt, config, m_queue, m_now());
    const auto state = request->state;
    m_queue->submit(std::move(request));
    return state;
}

StepStatistics Engine::step() {
    StepStatistics made;
    std::exception_ptr failure;
    Notifications notifications;
    std::string log_line;
    {
        const StepLock lock(*this);
        failure = make_step();
        made = m_step;
        notifications = m_output.take_notifications();
        log_line.swap(m_log_line);
    }
    const ThreadRole role(*m_queue, ThreadRole::Kind::CALLER);
    if (!log_line.empty()) log(LogLevel::INFO, log_line);
    try {
        notifications.notify();
    } catch (...) {  // the step's own failure matters more
        if (!failure) throw;
    }
    if (failure) std::rethrow_exception(failure);
    return made;
}

std::exception_ptr Engine::make_step() {
    try {
        return attempt_step();
    } catch (...) {
        with_message([&](const char* cause) { fail(cause); });
        return std::current_exception();
    }
}

std::exception_ptr Engine::attempt_step() {
    m_step = {};
    accept();
    handle_aborts();
    m_requests.end_expired(m_now());
    m_tokens.continue_pending();
    m_queue->check_process();  // a logits processor may have called fork()
    m_drafting->propose(m_requests, m_step);
    const Batch& batch = schedule();
    const std::exception_ptr failure = batch.empty() ? nullptr : compute(batch);
    if (batch.empty()) m_tokens.wait_for_pending();
    m_drafting->clear_drafts();
    m_output.finish_step();
    m_tokens.forget_ended();
    m_drafting->finish(m_requests);
    m_requests.forget_ended();
    account();
    return failure;
}

void Engine::accept() {
    m_queue->take(m_taken);
    for (auto& request : m_taken.requests)
        if (request) m_requests.accept(std::move(request));  // null: accepted by an earlier try
    m_taken.requests.clear();
}

void Engine::handle_aborts() {
    for (const AbortRequest& abort : m_taken.aborts)
        if (abort.state->request)
            m_requests.end(*abort.state->request, {abort.status, abort.reason});
    m_taken.aborts.clear();
}

const Batch& Engine::schedule() {
    const auto begin = Clock::now();
    const Batch& batch = m_scheduler.schedule();
    m_step.schedule_time = microseconds_since(begin);
    m_step.num_sequences = batch.entries.size();
    m_step.num_tokens = batch.num_tokens;
    for (const BatchEntry& entry : batch.entries) m_requests.begin(request_of(entry));
    return batch;
}

std::exception_ptr Engine::compute(const Batch& batch) {
    const auto begin = m_now();
    const std::vector<size_t> none;
    const std::vector<size_t>& windows = m_eviction ? m_eviction->windows(batch) : none;
    Logits logits;
    const auto run = [&] {
        logits = m_model->run(batch, windows);
        m_drafting->observe(batch, m_model->hidden_states());
    };
    if (auto failure = attempt(batch, run)) return failure;
    m_step.fill_time = m_model->times().fill;
    m_step.infer_time = m_model->times().infer;
    const auto advancing = Clock::now();
    m_scheduler.advance();
    m_step.schedule_time += microseconds_since(advancing);
    if (m_eviction) m_eviction->observe(batch);
    const auto sampling = Clock::now();
    const auto failure = attempt(batch, [&] { m_tokens.sample(batch, logits); });
    if (m_eviction && !failure) evict(batch);
    m_step.sampling_time = microseconds_since(sampling);
    m_drafting->record(batch, double(microseconds_since(begin, m_now())));
    return failure;
}

template <class Work>
std::exception_ptr Engine::attempt(const Batch& batch, Work&& work) {
    try {
        work();
        return nullptr;
    } catch (...) {
        with_message([&](const char* error) { cancel_batch(batch, error); });
        return std::current_exception();
    }
}

void Engine::cancel_batch(const Batch& batch, const std::string& error) {
    FinishInfo info{
        GenerationStatus::CANCEL, GenerationFinishReason::NONE,
        Error("the request was cancelled because a step failed: " + error, ErrorCode::step_failed),
        true};
    for (const BatchEntry& entry : batch.entries) {
        Request& request = request_of(entry);
        m_requests.end(request, info);
        // What failed may have been its end.
        check_invariant(request.state->is_over(), "a request could not be ended: ", error);
    }
}

void Engine::evict(const Batch& batch) {
    m_queue->check_process();  // a logits processor may have called fork()
    for (const BatchEntry& entry : batch.entries) {
        Request& request = request_of(entry);
        try {
            for (size_t i = 0; i < request.sequences.size() && !request.is_over(); ++i)
                m_eviction->evict(*request.sequences[i]);
        } catch (const PolicyError& error) {
            m_requests.end(request, {GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                                     Error(concat("the eviction policy failed: ", error.what()),
                                           ErrorCode::policy_failed)});
        }
    }
}

void Engine::account() {
#ifndef NDEBUG
    m_scheduler.store().check_integrity();
#endif
    m_recorder.count_blocks();
    m_log_line = m_recorder.record(m_step);
    if (m_requests.all().empty() || m_recorder.num_steps() % memory_interval == 0 ||
        m_scheduler.store().exceeds_budget())
        m_scheduler.give_back_unused(m_model->cache());
}

void Engine::fail(const char* cause) noexcept {
    // What failed may have been memory: what is done without it takes none.
    std::string error = "out of memory";  // so short that it is within the object
    try {
        error = concat("the pipeline failed and serves no more: ", cause);
    } catch (...) {
    }
    try {
        m_queue->fail(error);
    } catch (...) {
        m_queue->fail(error = "out of memory");
    }
    m_requests.fail(error);
    const auto fail_taken = [&] {
        for (const auto& request : m_taken.requests)
            if (request) m_requests.fail(*request, error);  // else it was accepted already
        m_taken.requests.clear();
        m_taken.aborts.clear();
    };
    fail_taken();
    try {
        m_queue->take(m_taken);
    } catch (...) {  // of aborts, which matter no more
    }
    fail_taken();
}

bool Engine::has_work() const {
    m_queue->check_process();
    return m_queue->num_requests() > 0;
}

PipelineStatistics Engine::statistics() const {
    m_queue->check_process();
    return m_recorder.statistics();
}

Engine::Prefixes Engine::prefixes() {
    check_argument(m_has_prefixes,
                   "the pipeline has no prefix cache: enable_prefix_caching is false");
    return Prefixes(*this);
}

}  // namespace pagewheel
