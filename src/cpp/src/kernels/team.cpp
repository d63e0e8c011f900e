#include "kernels/team.hpp"

#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagewheel::kernels {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds linger{20};
constexpr std::chrono::milliseconds longest_stay{20};

}  // namespace

void Backoff::wait() {
    // Longer than any item takes on a core of its own: the other thread may be without one.
    if (++m_waits > 20000) return std::this_thread::yield();
#if defined(__x86_64__)
    _mm_pause();
#endif
}

Team& Team::mine() {
    static thread_local const std::shared_ptr<Team> team = std::make_shared<Team>();
    return *team;
}

void Team::run(Member member, void* job, size_t helpers) {
    m_member = member;
    m_job.store(job);
    m_epoch.fetch_add(1);
    while (m_helpers.load(std::memory_order_relaxed) < helpers) {
        m_helpers.fetch_add(1, std::memory_order_relaxed);
        try {
            tbb::this_task_arena::enqueue([team = shared_from_this()] { team->help(); });
        } catch (...) {  // no memory: one helper less
            m_helpers.fetch_sub(1, std::memory_order_relaxed);
            break;
        }
    }
    member(job);
    m_job.store(nullptr);
    // A helper that comes later finds no job; one that found it counted itself before.
    for (Backoff backoff; m_visitors.load() > 0;) backoff.wait();
}

void Team::help() {
    size_t seen = 0;
    const Clock::time_point begin = Clock::now();
    Clock::time_point last = begin, now = begin;
    Backoff backoff;
    for (unsigned rounds = 0; now - begin < longest_stay && (now - last < linger || is_kept());
         ++rounds) {
        if (rounds % 16 == 0) now = Clock::now();
        const size_t epoch = m_epoch.load(std::memory_order_acquire);
        if (epoch == seen) {
            backoff.wait();
            continue;
        }
        seen = epoch;
        backoff = {};
        m_visitors.fetch_add(1);
        if (void* job = m_job.load()) m_member(job);
        m_visitors.fetch_sub(1);
        last = now = Clock::now();
    }
    m_helpers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace pagewheel::kernels
