#include "runtime/grammar_masks.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "runtime/request.hpp"

namespace pagewheel {

namespace {

constexpr size_t most_threads = 8;  // of the pool
constexpr std::chrono::milliseconds watch_interval{2};
constexpr std::chrono::milliseconds longest_idle_wait{20};

/// Null where the sequence's next token needs none.
std::shared_ptr<SequenceGrammar> grammar_of(const SequenceState& sequence) {
    const Request& request = *sequence.request;
    if (!request.rules.grammar) return nullptr;
    // The first mask came with the grammar.
    if (sequence.num_committed() == sequence.prompt_length) return nullptr;
    if (!request.config().is_beam_search()) return sequence.sampler.grammar();
    return request.beams ? request.beams->grammar(sequence.index) : nullptr;
}

}  // namespace

GrammarMasks::~GrammarMasks() {
    {
        const std::lock_guard lock(m_mutex);
        m_ends = true;
        for (Work* work : m_works) work->grammar.cancel();
    }
    m_has_late.notify_all();
    m_has_works.notify_all();
    for (std::thread& thread : m_pool) thread.join();
    if (m_watcher.joinable()) m_watcher.join();
}

// ---- The step's side.

bool GrammarMasks::find_mask(SequenceState& sequence) {
    const auto grammar = grammar_of(sequence);
    if (!grammar) return true;
    if (sequence.late_mask) {
        const std::lock_guard lock(m_mutex);
        if (!sequence.late_mask->is_done) return false;
        sequence.late_mask = nullptr;
    }
    const TokenHistory history{sequence.tokens, sequence.prompt_length};
    if (grammar->has_mask(history)) return true;
    const Outcome outcome = run_at_once(sequence, *grammar, [&] { grammar->follow(history); });
    if (outcome != Outcome::DONE) make_late(sequence, outcome == Outcome::CANCELLED);
    return outcome == Outcome::DONE;
}

std::vector<int64_t> GrammarMasks::find_jump_forward(SequenceState& sequence) {
    std::vector<int64_t> found;
    SequenceGrammar& grammar = *sequence.sampler.grammar();
    const Outcome outcome = run_at_once(sequence, grammar, [&] {
        found = grammar.find_jump_forward({sequence.tokens, sequence.prompt_length});
    });
    if (outcome != Outcome::CANCELLED) return found;
    make_late(sequence, true);
    return {};
}

void GrammarMasks::wait_for_any(const std::vector<SequenceState*>& sequences) {
    Lock lock(m_mutex);
    m_is_done.wait_for(lock, longest_idle_wait, [&] {
        return std::any_of(sequences.begin(), sequences.end(), [](const SequenceState* sequence) {
            return sequence->late_mask->is_done;
        });
    });
}

template <class Function>
GrammarMasks::Outcome GrammarMasks::run_at_once(SequenceState& sequence, SequenceGrammar& grammar,
                                                Function&& function) {
    Lock lock(m_mutex);
    auto& account = sequence.request->grammar_account;
    if (!account) account = std::make_shared<GrammarAccount>(GrammarAccount{m_limits.hold_time});
    // Who works at a late mask has the lexer's lock.
    const bool is_locked = std::any_of(m_late.begin(), m_late.end(), [&](const auto& late) {
        return late->grammar->lexer() == grammar.lexer();
    });
    const Time credit = account->credit;
    if (is_locked || credit <= Time(0) || credit < m_limits.hold_time / 4)
        return Outcome::NO_CREDIT;
    Work work{grammar, credit};
    run(lock, work, *account, function);
    return work.is_cancelled ? Outcome::CANCELLED : Outcome::DONE;
}

template <class Function>
void GrammarMasks::run(Lock& lock, Work& work, GrammarAccount& account, Function&& function) {
    if (!m_watcher.joinable()) m_watcher = std::thread([this] { watch(); });
    m_works.push_back(&work);
    if (!std::exchange(m_saw_works, true)) m_has_works.notify_one();
    lock.unlock();
    try {
        function();
    } catch (...) {  // thrown again where the mask is applied
    }
    const Time used = work.used();
    lock.lock();
    m_works.erase(std::find(m_works.begin(), m_works.end(), &work));
    ++account.num_works;
    account.credit = std::clamp<Time>(account.credit + m_limits.hold_time_per_work - used,
                                      -m_limits.hold_time, m_limits.hold_time);
    if (work.is_abandoned) account.late += used;
}

void GrammarMasks::make_late(SequenceState& sequence, bool is_cancelled) {
    const Request& request = *sequence.request;
    const auto generated = sequence.tokens.begin() + ptrdiff_t(sequence.prompt_length);
    sequence.late_mask = std::make_shared<LateMask>();
    LateMask& mask = *sequence.late_mask;
    mask.grammar = grammar_of(sequence);
    mask.account = request.grammar_account;
    if (is_cancelled) mask.beginning = request.rules.grammar;
    mask.tokens.assign(generated, sequence.tokens.end());

    const std::lock_guard lock(m_mutex);
    m_late.push_back(sequence.late_mask);
    const auto num_waiting = size_t(std::count_if(
        m_late.begin(), m_late.end(), [](const auto& late) { return !late->is_running; }));
    m_has_late.notify_one();
    if (num_waiting <= m_num_idle || m_pool.size() == most_threads) return;
    try {
        m_pool.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {  // the others do its part
        if (m_pool.empty()) throw;
    }
}

// ---- The threads' side.

void GrammarMasks::serve() {
    RunningThread().lower_priority();
    Lock lock(m_mutex);
    while (!m_ends) {
        if (const auto mask = take()) {
            find(lock, *mask);
            continue;
        }
        ++m_num_idle;
        m_has_late.wait(lock);
        --m_num_idle;
    }
}

std::shared_ptr<LateMask> GrammarMasks::take() {
    m_late.erase(
        std::remove_if(m_late.begin(), m_late.end(),
                       [](const auto& mask) { return mask->is_abandoned && !mask->is_running; }),
        m_late.end());
    std::shared_ptr<LateMask> best;
    for (const auto& mask : m_late) {
        const bool is_locked = std::any_of(m_late.begin(), m_late.end(), [&](const auto& other) {
            return other->is_running && other->grammar->lexer() == mask->grammar->lexer();
        });
        if (!is_locked && (!best || mask->account->late < best->account->late)) best = mask;
    }
    if (best) best->is_running = true;
    return best;
}

void GrammarMasks::find(Lock& lock, LateMask& mask) {
    GrammarAccount& account = *mask.account;
    lock.unlock();
    try {
        if (mask.beginning) mask.grammar->restart(*mask.beginning);
    } catch (const std::exception&) {  // it remains cancelled
    }
    lock.lock();
    if (m_ends) return;
    const Time most = m_limits.late_time + account.num_works * m_limits.late_time_per_work;
    Work work{*mask.grammar, most - account.late, &mask.is_abandoned};
    run(lock, work, account, [&] { mask.grammar->follow({mask.tokens, 0}); });
    if (work.is_cancelled)
        mask.grammar->end(
            concat("the grammar cannot go on: its masks took more than ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(most).count(),
                   " ms of a processor"));
    mask.is_done = true;
    m_late.erase(std::find_if(m_late.begin(), m_late.end(),
                              [&](const auto& each) { return each.get() == &mask; }));
    lock.unlock();  // whoever is woken has what this thread waits for
    m_is_done.notify_one();
    lock.lock();
}

void GrammarMasks::watch() {
    Lock lock(m_mutex);
    while (!m_ends) {
        if (m_works.empty() && !std::exchange(m_saw_works, false))
            m_has_works.wait(lock);
        else
            m_has_works.wait_for(lock, watch_interval);
        for (Work* work : m_works) {
            const bool ends =
                work->used() > work->most || (work->is_abandoned && *work->is_abandoned);
            if (!ends || std::exchange(work->is_cancelled, true)) continue;
            work->grammar.cancel();
        }
    }
}

}  // namespace pagewheel
