// Phases of independent items, shared by whoever is there.
#pragma once

#include <tbb/task_arena.h>
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <tuple>

#include "kernels/work_ranges.hpp"

namespace pagewheel::kernels {

/// Waits a moment: a short pause at first, later a yield.
class Backoff {
public:
    void wait();

private:
    unsigned m_waits = 0;
};

/// The threads that help one calling thread, out of its TBB arena. A helper stays for some 20
/// microseconds after its last work, because waking a thread takes as long as a small layer does;
/// then, or after 20 milliseconds, which gives other arenas their turn, it is the arena's again.
/// The caller starts at once and waits for no helper that has not come.
///
/// Helpers of eight places in the arena look for work, and say that they are at it, in lines of
/// their own: what a call costs the caller grows with an eighth of the threads.
class Team : public std::enable_shared_from_this<Team> {
public:
    using Member = void (*)(void* job);

    /// The calling thread's own.
    static Team& mine();

    /// Whether helpers stay while there is nothing to do: see TeamSession.
    void keep(bool kept) { m_kept.store(kept, std::memory_order_relaxed); }
    bool is_kept() const { return m_kept.load(std::memory_order_relaxed); }

    /// Calls member(job), which does not throw, here and, while that lasts, on each helper that is
    /// there and told: those at the first `told` places, others of their eight too. What helpers
    /// read and write through `job` they are done with when this returns.
    void run(Member member, void* job, size_t helpers, size_t told);

private:
    static constexpr size_t group_places = 8;
    static constexpr size_t num_groups = 64;  // places beyond begin again with the first

    struct Group {
        alignas(apart) std::atomic<size_t> epoch{0};  // changes with each call
        std::atomic<void*> job{nullptr};
        alignas(apart) std::atomic<size_t> visitors{0};  // helpers that may hold the job
    };

    void recruit();
    bool fill_vacancy();
    void help();

    std::atomic<bool> m_kept{false};
    Member m_member = nullptr;
    bool m_running = false;  // of the thread whose team it is
    size_t m_epoch = 0;
    alignas(apart) std::atomic<size_t> m_helpers{0};  // asked for or there
    std::atomic<size_t> m_vacancies{0};               // not yet asked for
    Group m_groups[num_groups];
};

namespace detail {

/// The first exception of a call. After it no body runs any more.
class Failure {
public:
    template <class Function>
    void guard(const Function& function) noexcept {
        if (m_failed.load(std::memory_order_relaxed)) return;
        try {
            function();
        } catch (...) {
            if (!m_failed.exchange(true)) m_error = std::current_exception();
        }
    }
    /// Once all threads are done.
    void rethrow() const {
        if (m_error) std::rethrow_exception(m_error);
    }

private:
    std::atomic<bool> m_failed{false};
    std::exception_ptr m_error;
};

struct Progress {
    template <class Phase>
    explicit Progress(const Phase&) {}

    alignas(apart) std::atomic<size_t> next{0};
    alignas(apart) std::atomic<size_t> done{0};
};

struct StreamProgress : WorkRanges {
    template <class Phase>
    explicit StreamProgress(const Phase& phase) : WorkRanges(phase.items) {}
};

struct NoProgress {
    template <class Phase>
    explicit NoProgress(const Phase&) {}
};

}  // namespace detail

/// `items` calls body(item) that may run at once. Threads take them in turn.
template <class Body>
struct Phase {
    using Progress = detail::Progress;
    size_t items;
    Body body;
};

/// A phase in which neighbouring items are neighbours in memory: each thread has a range of them,
/// so that it reads one stream, and the same from call to call (WorkRanges).
template <class Body>
struct StreamPhase : Phase<Body> {
    using Progress = detail::StreamProgress;
};

/// A call of body() on each thread, for which no other waits; one more on a thread that left and
/// comes again while the phases run.
template <class Body>
struct EachThread {
    using Progress = detail::NoProgress;
    Body body;
};

template <class Body>
Phase(size_t, Body) -> Phase<Body>;
template <class Body>
StreamPhase(size_t, Body) -> StreamPhase<Body>;
template <class Body>
EachThread(Body) -> EachThread<Body>;

namespace detail {

/// A thread's part of a phase: takes items while there are some, then waits for those that others
/// took. Who comes when none is left only reads.
template <class Body>
void work(Progress& progress, const Phase<Body>& phase, Failure& failure) {
    size_t done = 0;
    if (progress.next.load(std::memory_order_relaxed) < phase.items)
        for (size_t i; (i = progress.next.fetch_add(1, std::memory_order_relaxed)) < phase.items;
             ++done)
            failure.guard([&] { phase.body(i); });
    if (done > 0) progress.done.fetch_add(done, std::memory_order_release);
    for (Backoff backoff; progress.done.load(std::memory_order_acquire) < phase.items;)
        backoff.wait();
}

template <class Body>
void work(StreamProgress& ranges, const StreamPhase<Body>& phase, Failure& failure) {
    ranges.work([&](size_t i) { failure.guard([&] { phase.body(i); }); });
    for (Backoff backoff; !ranges.all_done();) backoff.wait();
}

template <class Body>
void work(NoProgress&, const EachThread<Body>& phase, Failure& failure) {
    failure.guard(phase.body);
}

/// How many threads find something to do.
template <class Body>
size_t useful_threads(const Phase<Body>& phase) {
    return phase.items;
}

template <class Body>
size_t useful_threads(const EachThread<Body>&) {
    return 1;
}

template <class Function>
void call(void* function) {
    (*static_cast<Function*>(function))();
}

}  // namespace detail

/// Runs the phases one after the other, each one's items on the calling thread and its team; what a
/// phase wrote is seen by the next. `helpers` are asked for, and as many are told as find something
/// to do; with 0, a few that are there from an earlier call help all the same. Throws the first
/// exception of a body, after which no other begins.
template <class... Phases>
void run_phases_with(size_t helpers, const Phases&... phases) {
    std::tuple<typename Phases::Progress...> progress(phases...);
    detail::Failure failure;
    auto member = [&] {
        std::apply([&](auto&... each) { (detail::work(each, phases, failure), ...); }, progress);
    };
    const size_t useful = std::max({size_t(1), detail::useful_threads(phases)...});
    Team::mine().run(detail::call<decltype(member)>, &member, helpers,
                     std::min(useful, helpers + 1));
    failure.rethrow();
}

/// The threads of the caller's arena.
inline size_t num_threads() {
    return size_t(tbb::this_task_arena::max_concurrency());
}

/// Runs the phases on as many threads as the caller's arena has.
template <class... Phases>
void run_phases(const Phases&... phases) {
    run_phases_with(num_threads() - 1, phases...);
}

/// While it lives, helpers that came to the calling thread's team stay: between calls that follow
/// one another closely, of which some are one thread's work. Sessions may be nested.
class TeamSession {
public:
    TeamSession() : m_was_kept(Team::mine().is_kept()) { Team::mine().keep(true); }
    ~TeamSession() { Team::mine().keep(m_was_kept); }
    TeamSession(const TeamSession&) = delete;
    TeamSession& operator=(const TeamSession&) = delete;

private:
    bool m_was_kept;
};

}  // namespace pagewheel::kernels
