// The thread team of the linear layers. Under ThreadSanitizer this says that a phase sees all that
// the one before it wrote.
#include "kernels/team.hpp"

#include <gtest/gtest.h>

#include <tbb/global_control.h>

#include <atomic>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pagewheel::kernels {
namespace {

constexpr size_t num_items = 37;

/// Three phases, each of which needs all items of the one before; plain memory alone.
class Layer {
public:
    /// Every item is x + 1, then 37 times that sum, then that less x.
    void run(int64_t x) {
        run_phases(
            Phase{num_items, [&](size_t i) { m_first[i] = x + 1; }},
            Phase{num_items,
                  [&](size_t i) {
                      m_second[i] = std::accumulate(m_first.begin(), m_first.end(), int64_t(0));
                  }},
            Phase{num_items, [&](size_t i) { m_third[i] = m_second[num_items - 1 - i] - x; }});
        const int64_t expected = int64_t(num_items) * (x + 1) - x;
        for (const int64_t value : m_third) ASSERT_EQ(value, expected) << "in run " << x;
    }

private:
    std::vector<int64_t> m_first = std::vector<int64_t>(num_items),
                         m_second = std::vector<int64_t>(num_items),
                         m_third = std::vector<int64_t>(num_items);
};

TEST(Team, PhasesSeeWhatThePhaseBeforeWrote) {
    tbb::task_arena arena(4);
    arena.execute([] {
        Layer layer;
        for (int64_t x = 0; x < 2000; ++x) layer.run(x);
    });
}

// On the thread that makes it, without helpers: those of the outer call wait for its item.
TEST(Team, ACallWithinACallsBodyEnds) {
    tbb::task_arena arena(4);
    arena.execute([] {
        std::atomic<size_t> done{0};
        run_phases(Phase{num_items,
                         [&](size_t) { run_phases(Phase{num_items, [&](size_t) { ++done; }}); }});
        EXPECT_EQ(done, num_items * num_items);
        Layer().run(1);
    });
}

TEST(Team, CallersOfOneArenaHaveTeamsOfTheirOwn) {
    tbb::task_arena arena(4);
    std::vector<std::thread> callers;
    for (int64_t caller = 0; caller < 3; ++caller)
        callers.emplace_back([&arena, caller] {
            arena.execute([&] {
                Layer layer;
                for (int64_t x = 0; x < 500; ++x) {
                    layer.run(1000 * caller + x);
                    // Helpers leave after 20 microseconds without work, and are asked for anew.
                    if (x % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
                }
            });
        });
    for (std::thread& caller : callers) caller.join();
}

// More threads than processors: those that wait let the others run.
TEST(Team, MoreThreadsThanProcessorsDoAllThatIsToBeDone) {
    for (const size_t threads : {8, 64}) {
        const tbb::global_control workers(tbb::global_control::max_allowed_parallelism, threads);
        tbb::task_arena arena{int(threads)};
        arena.execute([] {
            const TeamSession session;
            Layer layer;
            for (int64_t x = 0; x < 50; ++x) layer.run(x);
        });
    }
}

// Places of few threads are anywhere in such arenas; calls of few items tell only the first places.
TEST(Team, ArenasOfAnySizeServeCallsOfAnySize) {
    for (const int threads : {1, 2, 9, 65, 300, 1000}) {
        tbb::task_arena arena(threads);
        arena.execute([] {
            for (size_t round = 0; round < 200; ++round) {
                const size_t items = round % 2 ? round : round % 10;
                std::vector<size_t> first(items), second(items);
                run_phases(StreamPhase{items, [&](size_t i) { first[i] = i + 1; }},
                           Phase{items, [&](size_t i) { second[i] = first[items - 1 - i]; }});
                for (size_t i = 0; i < items; ++i) ASSERT_EQ(second[i], items - i);
            }
        });
    }
}

TEST(Team, OneThreadRunsThePhasesAlone) {
    tbb::task_arena arena(1);
    arena.execute([] { Layer().run(3); });
}

TEST(Team, PhasesWithoutItemsEnd) {
    tbb::task_arena arena(4);
    int64_t sum = 0;
    arena.execute([&] {
        for (int i = 0; i < 100; ++i)
            run_phases(Phase{0, [](size_t) { FAIL(); }}, Phase{1, [&](size_t) { ++sum; }},
                       Phase{0, [](size_t) { FAIL(); }});
    });
    EXPECT_EQ(sum, 100);
}

TEST(Team, WhatABodyThrowsEndsTheCallAndNothingElse) {
    tbb::task_arena arena(4);
    arena.execute([] {
        Layer layer;
        for (size_t bad = 0; bad < num_items; ++bad) {
            std::atomic<int> late{0};
            EXPECT_THROW(run_phases(EachThread{[] {}},
                                    Phase{num_items,
                                          [&](size_t i) {
                                              if (i == bad) throw std::range_error("mine");
                                          }},
                                    StreamPhase{num_items, [&](size_t) { ++late; }}),
                         std::range_error);
            EXPECT_EQ(late, 0);
            layer.run(int64_t(bad));
        }
        EXPECT_THROW(run_phases(StreamPhase{num_items, [](size_t) { throw std::bad_alloc(); }}),
                     std::bad_alloc);
        EXPECT_THROW(run_phases(EachThread{[] { throw std::bad_alloc(); }}), std::bad_alloc);
    });
}

TEST(Team, SessionsKeepHelpersAndLetThemGo) {
    tbb::task_arena arena(4);
    arena.execute([] {
        Layer layer;
        for (int round = 0; round < 20; ++round) {
            EXPECT_FALSE(Team::mine().is_kept());
            {
                const TeamSession session;
                for (int64_t x = 0; x < 20; ++x) {
                    layer.run(x);
                    const TeamSession nested;
                    if (x % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
                }
                EXPECT_TRUE(Team::mine().is_kept());
            }
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            layer.run(round);
        }
    });
}

}  // namespace
}  // namespace pagewheel::kernels
