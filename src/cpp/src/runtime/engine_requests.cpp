// What enters the engine, and how it ends.
#include <algorithm>
#include <utility>

#include "check.hpp"
#include "runtime/engine.hpp"

namespace pagewheel {
namespace {

Clock::time_point deadline(Clock::time_point arrival, float timeout) {
    const std::chrono::duration<double> wait(timeout);
    return arrival + (wait < longest_wait ? std::chrono::duration_cast<Clock::duration>(wait)
                                          : Clock::duration(longest_wait));
}

}  // namespace

std::shared_ptr<GenerationHandle::State> Engine::submit(std::optional<uint64_t> id,
                                                        const std::vector<int64_t>& prompt,
                                                        const GenerationConfig& config) {
    m_inbox->check_process();
    config.validate();
    check_argument(config.num_beams <= m_scheduler.max_num_seqs(), "num_beams is ",
                   config.num_beams, "; allowed: up to max_num_seqs, which is ",
                   m_scheduler.max_num_seqs());
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

    request->state->inbox = m_inbox;
    request->state->request = request.get();
    if (config.timeout) request->deadline = deadline(request->arrival, *config.timeout);

    const auto state = request->state;
    m_inbox->submit(std::move(request));
    return state;
}

void Engine::check_prompt(const std::vector<int64_t>& prompt,
                          const GenerationConfig& config) const {
    check_argument(!prompt.empty(), "the prompt is empty: at least one token is needed");
    for (int64_t token : prompt)
        check_argument(token >= 0 && size_t(token) < m_model->vocabulary(),
                       "the prompt has token id ", token, ", outside of [0, ",
                       m_model->vocabulary(), ")");
    const auto check_fits = [&](size_t limit, const char* what) {
        check_argument(prompt.size() < limit, "the prompt has ", prompt.size(), " tokens; ", what,
                       " ", limit, ", of which at least one is to be generated");
    };
    const bool in_chunks = m_keeper && m_keeper->config().evict_during_prefill;
    if (m_limits.context_length != 0 && !in_chunks)
        check_fits(m_limits.context_length, "the model's context holds");
    // With eviction a block is spare, for copies of shared ones.
    const size_t spare = m_keeper ? m_model->block_size() : 0;
    if (!in_chunks) check_fits(m_max_tokens - spare, "the KV cache holds");
    if (config.max_new_tokens == GenerationConfig::unlimited)
        check_fits(config.max_length, "max_length is");
}

size_t Engine::max_tokens(size_t prompt_length, const GenerationConfig& config) const {
    // With eviction a sequence that is told where to end may outgrow the cache and the context.
    const bool endless = m_keeper && (config.max_new_tokens != GenerationConfig::unlimited ||
                                      config.max_length != GenerationConfig::unlimited);
    size_t limit = m_keeper ? GenerationConfig::unlimited : m_max_tokens.load();
    if (!endless && m_limits.context_length != 0) limit = std::min(limit, m_limits.context_length);
    if (config.max_new_tokens == GenerationConfig::unlimited)
        return std::min(limit, config.max_length);
    return config.max_new_tokens < limit - prompt_length ? prompt_length + config.max_new_tokens
                                                         : limit;
}

std::unique_ptr<SequenceRecord> Engine::make_record(Request& request, size_t index,
                                                    const std::vector<int64_t>& prompt) const {
    const GenerationConfig& config = request.config;
    auto record = std::make_unique<SequenceRecord>(SequenceRecord{
        &request, index, Sequence(), Sampler(config, index, detected_isa()),
        GeneratedText(m_decoders, {config.stop_strings, config.include_stop_str_in_output})});
    record->sequence.tokens = prompt;
    record->sequence.prompt_length = prompt.size();
    record->sequence.wants_prompt_logits = config.echo && config.logprobs > 0 && index == 0;
    record->sequence.priority = config.priority;
    record->sequence.prefix_key.salt = config.cache_salt;
    record->sequence.owner = record.get();
    record->sequence.eviction = &record->eviction;
    if (m_keeper) m_keeper->admit(record->sequence, request.max_tokens);
    return record;
}

void Engine::accept_submitted() {
    m_inbox->take(m_submitted, m_wishes);
    for (auto& request : m_submitted) {
        Request& accepted = *request;
        if (request->deadline) m_deadlines.emplace(*request->deadline, request.get());
        request->place = m_requests.size();
        m_requests.push_back(std::move(request));
        limit_again(accepted);
        if (!accepted.ended) m_scheduler.add(accepted.records.front()->sequence);
    }
    m_submitted.clear();
}

void Engine::limit_again(Request& request) {
    const size_t limit = m_scheduler.max_tokens(),
                 prompt_length = request.records.front()->sequence.prompt_length;
    // With eviction a sequence may outgrow the cache.
    if (!m_keeper) request.max_tokens = std::min(request.max_tokens, limit);
    if (prompt_length < limit || (m_keeper && m_keeper->config().evict_during_prefill)) return;
    end(request, GenerationStatus::CANCEL, GenerationFinishReason::NONE,
        concat("the request was cancelled: its prompt has ", prompt_length,
               " tokens, and since it was submitted pinned prefixes have left room for ", limit));
}

void Engine::honour_wishes() {
    for (const Wish& wish : m_wishes)
        if (wish.state->request) end(*wish.state->request, wish.status, wish.reason);
    m_wishes.clear();
}

void Engine::honour_deadlines() {
    if (m_deadlines.empty()) return;
    const auto now = Clock::now();
    while (!m_deadlines.empty() && m_deadlines.begin()->first <= now)
        end(*m_deadlines.begin()->second, GenerationStatus::TIMEOUT);
}

void Engine::begin(Request& request) {
    if (!std::exchange(request.begun, true)) m_inbox->left_queue();
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

void Engine::end(Request& request, GenerationStatus status, GenerationFinishReason reason,
                 const std::string& error) {
    if (std::exchange(request.ended, true)) return;
    begin(request);
    for (auto& record : request.records)
        if (request.beams)  // not each beam's last block, too
            m_scheduler.discard(record->sequence);
        else
            m_scheduler.remove(record->sequence);
    if (request.beams) publish_beams(request);
    if (request.deadline) m_deadlines.erase({*request.deadline, &request});
    m_ended.push_back(&request);
    tell_end(request, status, reason, error);
}

void Engine::tell_end(Request& request, GenerationStatus status, GenerationFinishReason reason,
                      const std::string& error) {
    announce(request);
    GenerationHandle::State& state = *request.state;
    state.request = nullptr;
    const std::lock_guard lock(state.mutex);
    state.status = status;
    state.error = error;
    if (reason == GenerationFinishReason::NONE) return;
    for (GenerationOutput& output : state.outputs)
        if (output.finish_reason == GenerationFinishReason::NONE) output.finish_reason = reason;
}

void Engine::fail(const std::string& cause) noexcept {
    // What failed may have been memory: every part is tried by itself.
    std::string error = "the pipeline failed";
    try {
        error = concat("the pipeline failed and serves no more: ", cause);
        m_inbox->fail(error);
    } catch (...) {
    }
    try {
        m_inbox->take(m_submitted, m_wishes);
    } catch (...) {
    }
    for (auto* requests : {&m_requests, &m_submitted})
        for (const auto& request : *requests) {
            if (!request) continue;  // of the submitted, it was accepted already
            try {
                if (!request->ended)
                    tell_end(*request, GenerationStatus::CANCEL, GenerationFinishReason::NONE,
                             error);
            } catch (...) {
                const std::lock_guard lock(request->state->mutex);
                request->state->status = GenerationStatus::CANCEL;
                request->state->changed.notify_all();
            }
            begin(*request);
            m_inbox->forget(*request);
        }
    // The scheduler still points to their sequences, but is not asked any more.
    m_submitted.clear();
    m_wishes.clear();
    m_ended.clear();
    m_deadlines.clear();
    m_requests.clear();
}

void Engine::forget_ended() {
    for (Request* request : m_ended) {
        m_inbox->forget(*request);
        const size_t place = request->place;
        std::swap(m_requests[place], m_requests.back());
        m_requests[place]->place = place;
        m_requests.pop_back();
    }
    m_ended.clear();
}

void Engine::announce(Request& request) {
    if (std::exchange(request.state->has_news, true)) return;
    m_news.push_back(request.state);
}

Engine::States Engine::take_news() {
    for (const auto& state : m_news) state->has_news = false;
    return std::exchange(m_news, {});
}

void Engine::wake(const States& states) {
    std::exception_ptr failure;
    for (const auto& state : states) {
        try {
            state->wake();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace pagewheel
