// Phases of independent items, shared by whoever comes.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <cstddef>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagewheel::kernels {

/// Items of one phase. The caller of run_phases() starts at once; other threads of its arena join
/// when they wake, so that none is waited for that has not come.
template <class Body>
struct Phase {
    size_t items;
    Body body;  // body(item), not throwing
};

template <class Body>
Phase(size_t, Body) -> Phase<Body>;

namespace detail {

struct alignas(64) Progress {
    std::atomic<size_t> next{0};
    alignas(64) std::atomic<size_t> done{0};
};

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

/// A thread's part of a phase: takes items while there are some, then waits for those that others
/// took.
template <class Body>
void work(Progress& progress, const Phase<Body>& phase) {
    for (size_t i; (i = progress.next.fetch_add(1, std::memory_order_relaxed)) < phase.items;) {
        phase.body(i);
        progress.done.fetch_add(1, std::memory_order_release);
    }
    while (progress.done.load(std::memory_order_acquire) < phase.items) pause();
}

}  // namespace detail

/// Runs the phases one after the other, each one's items on all threads of the calling thread's
/// TBB arena; what a phase wrote is seen by the next.
template <class... Bodies>
void run_phases(const Phase<Bodies>&... phases) {
    detail::Progress progress[sizeof...(phases)];
    const auto member = [&] {
        size_t i = 0;
        (detail::work(progress[i++], phases), ...);
    };
    const int threads = tbb::this_task_arena::max_concurrency();
    if (threads == 1) return member();
    // Isolated: a thread that waits here must not start another call and take over its memory.
    tbb::this_task_arena::isolate(
        [&] { tbb::parallel_for(0, threads, [&](int) { member(); }, tbb::simple_partitioner()); });
}

}  // namespace pagewheel::kernels
