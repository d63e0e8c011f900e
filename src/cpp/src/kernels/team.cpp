#include "kernels/team.hpp"

#include <algorithm>
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
constexpr size_t recruits = 8;  // that a thread asks for before it works

}  // namespace

void Backoff::wait() {
    // Some 0.1 ms, longer than most waits where each thread has a core: the one that is waited for
    // may be without one. A thread that yields where none is waiting is back at once.
    if (m_waits == 2000) return std::this_thread::yield();
    ++m_waits;
#if defined(__x86_64__)
    _mm_pause();
#endif
}

Team& Team::mine() {
    static thread_local const std::shared_ptr<Team> team = std::make_shared<Team>();
    return *team;
}

void Team::run(Member member, void* job, size_t helpers, size_t told) {
    if (m_running) return member(job);  // within a call's body: others would wait for that
    m_running = true;
    const size_t groups =
        std::clamp<size_t>((told + group_places - 1) / group_places, 1, num_groups);
    m_member = member;
    ++m_epoch;
    for (size_t g = 0; g < groups; ++g) {
        m_groups[g].job.store(job, std::memory_order_release);
        m_groups[g].epoch.store(m_epoch, std::memory_order_release);
    }
    const size_t there = m_helpers.load(std::memory_order_relaxed);
    if (there < helpers) {
        m_vacancies.store(helpers - there, std::memory_order_release);
        recruit();
    }
    member(job);
    for (size_t g = 0; g < groups; ++g) m_groups[g].job.store(nullptr);
    // A helper that comes later finds no job; one that found it counted itself before.
    for (size_t g = 0; g < groups; ++g)
        for (Backoff backoff; m_groups[g].visitors.load() > 0;) backoff.wait();
    m_running = false;
}

/// Asks the arena for some of the helpers that are missing. They ask for the next ones.
void Team::recruit() {
    for (size_t i = 0; i < recruits && fill_vacancy(); ++i) {
        try {
            tbb::this_task_arena::enqueue([team = shared_from_this()] { team->help(); });
        } catch (...) {  // no memory: one helper less
            m_helpers.fetch_sub(1, std::memory_order_relaxed);
            return;
        }
    }
}

/// If there is one.
bool Team::fill_vacancy() {
    size_t vacancies = m_vacancies.load(std::memory_order_acquire);
    do {
        if (vacancies == 0) return false;
    } while (
        !m_vacancies.compare_exchange_weak(vacancies, vacancies - 1, std::memory_order_acq_rel));
    m_helpers.fetch_add(1, std::memory_order_relaxed);
    return true;
}

void Team::help() {
    recruit();
    const int place = std::max(tbb::this_task_arena::current_thread_index(), 0);
    Group& group = m_groups[size_t(place) / group_places % num_groups];
    size_t seen = 0;
    const Clock::time_point begin = Clock::now();
    Clock::time_point last = begin, now = begin;
    Backoff backoff;
    for (unsigned rounds = 0; now - begin < longest_stay && (now - last < linger || is_kept());
         ++rounds) {
        if (rounds % 16 == 0) now = Clock::now();
        const size_t epoch = group.epoch.load(std::memory_order_acquire);
        if (epoch == seen) {
            backoff.wait();
            continue;
        }
        seen = epoch;
        backoff = {};
        group.visitors.fetch_add(1);
        if (void* job = group.job.load()) m_member(job);
        group.visitors.fetch_sub(1);
        last = now = Clock::now();
    }
    m_helpers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace pagewheel::kernels
