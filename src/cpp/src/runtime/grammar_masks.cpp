#include "runtime/grammar_masks.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/process.hpp"
#include "runtime/request.hpp"

namespace pagewheel {

namespace {

// Threads that are in work which took too long; more of them are not replaced.
constexpr size_t most_slow_threads = 8;

/// Null where the sequence's next token needs none.
std::shared_ptr<SequenceGrammar> rule_of(const SequenceState& sequence) {
    const Request& request = *sequence.request;
    if (!request.rules.grammar) return nullptr;
    // The first mask came with the grammar.
    if (sequence.num_committed() == sequence.prompt_length) return nullptr;
    if (!request.config().is_beam_search()) return sequence.sampler.grammar();
    return request.beams ? request.beams->grammar(sequence.index) : nullptr;
}

size_t num_generated(const Sequence& sequence) {
    return sequence.num_committed() - sequence.prompt_length;
}

}  // namespace

GrammarAhead::GrammarAhead(size_t num_threads, const GrammarLimits& limits)
    : m_num_threads(num_threads), m_limits(limits), m_most_active(num_threads) {}

GrammarAhead::~GrammarAhead() {
    {
        const std::lock_guard lock(m_mutex);
        m_ends = true;
        for (const Worker& worker : m_workers)
            if (worker.work) worker.work->rule->cancel();
    }
    m_has_work.notify_all();
    for (Worker& worker : m_workers) worker.thread.join();
}

// ---- The step's side.

void GrammarAhead::begin_step() {
    m_left = m_limits.step_wait;
    const std::lock_guard lock(m_mutex);
    check_workers();
}

void GrammarAhead::find_masks(const Batch& batch) {
    {
        const std::lock_guard lock(m_mutex);
        m_most_active = m_num_threads;
    }
    for (const BatchEntry& entry : batch.entries)
        if (entry.samples() && entry.sequence->num_drafted == 0)
            find(state_of(*entry.sequence), Wanted::MASK);
}

void GrammarAhead::find_jump_forward(SequenceState& sequence) {
    find(sequence, Wanted::JUMP_FORWARD);
}

void GrammarAhead::find(SequenceState& sequence, Wanted wanted) {
    auto rule = rule_of(sequence);
    if (!rule) return;
    Request& request = *sequence.request;
    if (!request.grammar_pace) request.grammar_pace = std::make_shared<GrammarPace>();
    // A beam that was forked has another rule.
    auto& work = sequence.grammar_work;
    if (!work || work->rule != rule) {
        if (work) work->abandon();
        work = std::make_shared<GrammarWork>(std::move(rule), request.grammar_pace);
    }

    const std::lock_guard lock(m_mutex);
    if (is_found(*work, sequence, wanted)) return;
    (wanted == Wanted::MASK ? work->wants_mask : work->wants_jump_forward) = true;
    if (work->is_busy) return;
    const auto known = ptrdiff_t(sequence.prompt_length + work->tokens.size());
    work->tokens.insert(work->tokens.end(), sequence.tokens.begin() + known,
                        sequence.tokens.begin() + ptrdiff_t(sequence.num_committed()));
    enqueue(work);
}

bool GrammarAhead::is_found(const GrammarWork& work, const SequenceState& sequence, Wanted wanted) {
    return !work.is_busy && (wanted == Wanted::MASK ? work.mask_of : work.jump_forward_of) ==
                                num_generated(sequence);
}

void GrammarAhead::enqueue(const std::shared_ptr<GrammarWork>& work) {
    const bool is_first = m_workers.empty();
    for (size_t i = 0; is_first && i <= m_num_threads; ++i) start_worker();
    work->is_busy = true;
    (work->pace->is_slow ? m_slow_queue : m_queue).push_back(work);
    if (num_workers(/*slow=*/true) > 0)
        m_has_work.notify_all();  // one that is woken may be of the other kind
    else
        m_has_work.notify_one();
}

void GrammarAhead::start_worker() {
    Worker& worker = m_workers.emplace_back();
    try {
        worker.thread = std::thread([this, &worker] { serve(worker); });
    } catch (const std::system_error&) {  // the others do its part
        m_workers.pop_back();
        if (m_workers.empty()) throw;
    }
}

bool GrammarAhead::has_mask(const SequenceState& sequence) {
    const auto rule = rule_of(sequence);
    if (!rule) return true;
    const auto& work = sequence.grammar_work;
    const std::lock_guard lock(m_mutex);
    return work && work->rule == rule && is_found(*work, sequence, Wanted::MASK);
}

bool GrammarAhead::wait_for_mask(SequenceState& sequence) {
    if (has_mask(sequence)) return true;
    find(sequence, Wanted::MASK);
    return wait_for(sequence, Wanted::MASK);
}

bool GrammarAhead::wait_for_jump_forward(const SequenceState& sequence) {
    return sequence.grammar_work && wait_for(sequence, Wanted::JUMP_FORWARD);
}

bool GrammarAhead::wait_for(const SequenceState& sequence, Wanted wanted) {
    Lock lock(m_mutex);
    const auto& work = sequence.grammar_work;
    if (work->is_busy && !work->pace->is_slow) {
        m_waits_for.assign(1, work);
        wait(lock, 1);
    }
    return is_found(*work, sequence, wanted);
}

void GrammarAhead::wait_for_masks(const Batch& batch) {
    Lock lock(m_mutex);
    m_waits_for.clear();
    for (const BatchEntry& entry : batch.entries) {
        const auto& work = state_of(*entry.sequence).grammar_work;
        if (entry.samples() && work && work->is_busy && !work->pace->is_slow)
            m_waits_for.push_back(work);
    }
    if (!m_waits_for.empty()) wait(lock, m_waits_for.size());
}

void GrammarAhead::wait_for_any(const std::vector<SequenceState*>& sequences) {
    Lock lock(m_mutex);
    m_waits_for.clear();
    for (const SequenceState* sequence : sequences) {
        const auto& work = sequence->grammar_work;
        if (!work->is_busy) return;
        m_waits_for.push_back(work);
    }
    wait(lock, 1);
}

void GrammarAhead::wait(Lock& lock, size_t num_awaited) {
    m_num_awaited = num_awaited;
    for (const auto& work : m_waits_for) work->is_awaited = true;
    m_most_active = m_num_threads + 1;
    if (!m_queue.empty()) m_has_work.notify_all();
    const auto begin = Clock::now();
    const bool is_done = m_is_done.wait_for(lock, m_left, [&] { return m_num_awaited == 0; });
    m_left -= std::min<std::chrono::nanoseconds>(m_left, Clock::now() - begin);
    for (const auto& work : m_waits_for) work->is_awaited = false;
    m_waits_for.clear();
    m_num_awaited = 0;
    if (!is_done) check_workers();
}

void GrammarAhead::check_workers() {
    const auto now = Clock::now();
    bool any_ended = false;
    for (Worker& worker : m_workers) {
        any_ended = any_ended || worker.has_ended;
        if (!worker.work) continue;
        if (!worker.is_slow && now - worker.began >= m_limits.step_wait) make_slow(worker);
        const auto used = processor_time(worker.thread.native_handle()) - worker.used_before;
        if (used > m_limits.task_time) worker.work->rule->cancel();
    }
    if (any_ended)
        m_workers.remove_if([](Worker& worker) {
            if (worker.has_ended) worker.thread.join();
            return worker.has_ended;
        });
    if (m_workers.empty()) return;
    while (num_workers(/*slow=*/false) <= m_num_threads &&
           num_workers(/*slow=*/true) <= most_slow_threads) {
        const size_t num_before = m_workers.size();
        start_worker();
        if (m_workers.size() == num_before) return;
    }
}

void GrammarAhead::make_slow(Worker& worker) {
    worker.is_slow = true;
    --m_num_active;
    lower_priority(worker.number);
    const GrammarPace* const pace = worker.work->pace.get();
    worker.work->pace->is_slow = true;
    const auto first = std::stable_partition(
        m_queue.begin(), m_queue.end(), [&](const auto& work) { return work->pace.get() != pace; });
    m_slow_queue.insert(m_slow_queue.end(), first, m_queue.end());
    m_queue.erase(first, m_queue.end());
    m_has_work.notify_all();
}

size_t GrammarAhead::num_workers(bool slow) const {
    return size_t(std::count_if(m_workers.begin(), m_workers.end(), [&](const Worker& worker) {
        return !worker.has_ended && worker.is_slow == slow;
    }));
}

// ---- The threads' side.

void GrammarAhead::serve(Worker& worker) {
    Lock lock(m_mutex);
    worker.number = this_thread_number();
    while (!m_ends) {
        if (const auto work = take(worker)) {
            do_work(lock, worker, work);
            continue;
        }
        // One stays for slow requests.
        if (worker.is_slow && num_workers(/*slow=*/true) > 1) break;
        m_has_work.wait(lock);
    }
    worker.has_ended = true;
}

std::shared_ptr<GrammarWork> GrammarAhead::take(const Worker& worker) {
    if (worker.is_slow) return num_workers(/*slow=*/true) > 1 ? nullptr : take_slow();
    if (m_num_active >= m_most_active || m_queue.empty()) return nullptr;
    auto work = std::move(m_queue.front());
    m_queue.pop_front();
    return work;
}

std::shared_ptr<GrammarWork> GrammarAhead::take_slow() {
    if (m_slow_queue.empty()) return nullptr;
    auto next = std::find_if(m_slow_queue.begin(), m_slow_queue.end(),
                             [&](const auto& work) { return work->pace.get() != m_latest_slow; });
    if (next == m_slow_queue.end()) next = m_slow_queue.begin();
    auto work = std::move(*next);
    m_slow_queue.erase(next);
    m_latest_slow = work->pace.get();
    return work;
}

void GrammarAhead::do_work(Lock& lock, Worker& worker, const std::shared_ptr<GrammarWork>& work) {
    worker.work = work;
    worker.began = Clock::now();
    worker.used_before = processor_time(pthread_self());
    if (!worker.is_slow) ++m_num_active;
    while ((work->wants_jump_forward || work->wants_mask) && !work->is_abandoned) {
        // The one is accepted, and so the other found sooner.
        const bool is_jump_forward = work->wants_jump_forward;
        (is_jump_forward ? work->wants_jump_forward : work->wants_mask) = false;
        lock.unlock();
        try {
            const TokenHistory history{work->tokens, 0};
            if (is_jump_forward)
                work->rule->find_jump_forward(history);
            else
                work->rule->follow(history);
        } catch (...) {  // thrown again where the mask is asked for
        }
        lock.lock();
        (is_jump_forward ? work->jump_forward_of : work->mask_of) = work->tokens.size();
    }
    if (!worker.is_slow) --m_num_active;
    if (processor_time(pthread_self()) - worker.used_before < m_limits.step_wait)
        work->pace->is_slow = false;
    worker.work = nullptr;
    work->is_busy = false;
    if (work->is_awaited && m_num_awaited > 0 && --m_num_awaited == 0) m_is_done.notify_one();
}

}  // namespace pagewheel
