// Items that are divided among threads beforehand, alone and in phases.
#include "kernels/work_ranges.hpp"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

TEST(WorkRanges, OneThreadDoesAllItemsOfAllRangesInOrderOfItsOwn) {
    tbb::task_arena arena(4);
    arena.execute([] {
        WorkRanges ranges(10);
        std::vector<int> times(10);
        ranges.work([&](size_t i) { ++times[i]; });
        EXPECT_EQ(times, std::vector<int>(10, 1));
        EXPECT_TRUE(ranges.all_done());
    });
}

TEST(WorkRanges, NothingIsDoneAtOnce) {
    WorkRanges ranges(0);
    EXPECT_TRUE(ranges.all_done());
    ranges.work([](size_t) { FAIL(); });
}

// All but the first of these threads find the range of their place taken and have none.
TEST(WorkRanges, EachItemIsDoneOnceHoweverThreadsMeet) {
    std::mt19937 random(1);
    tbb::task_arena arena(3);
    arena.execute([&] {
        for (size_t round = 0; round < 300; ++round) {
            const size_t items = random() % 60;
            std::vector<std::atomic<int>> times(items);
            WorkRanges ranges(items);
            std::vector<std::thread> threads;
            for (size_t t = 0; t < 4; ++t)
                threads.emplace_back([&] { ranges.work([&](size_t i) { ++times[i]; }); });
            for (std::thread& thread : threads) thread.join();
            EXPECT_TRUE(ranges.all_done());
            for (const auto& one : times) ASSERT_EQ(one.load(), 1) << items << " items";
        }
    });
}

/// Counts of `items` items that `threads` threads did, each at its own place in an arena of as many
/// (the threads are not the arena's: more than processors would not come).
class Meeting {
public:
    explicit Meeting(size_t threads)
        : m_arena(int(threads), unsigned(threads)), m_threads(threads) {}

    void run(size_t items, size_t late) {
        std::vector<std::atomic<int>> times(items);
        std::optional<WorkRanges> ranges;
        m_arena.execute([&] { ranges.emplace(items); });
        EXPECT_EQ(ranges->count(), std::max<size_t>(1, std::min(m_threads, items)));
        std::atomic<size_t> waiting{0};
        std::vector<std::thread> threads;
        for (size_t t = 0; t + late < m_threads; ++t)
            threads.emplace_back([&] {
                m_arena.execute([&] {
                    for (++waiting; waiting + late < m_threads;) std::this_thread::yield();
                    ranges->work([&](size_t i) { ++times[i]; });
                });
            });
        for (std::thread& thread : threads) thread.join();
        EXPECT_TRUE(ranges->all_done());
        for (const auto& one : times) ASSERT_EQ(one.load(), 1) << items << " items";
    }

private:
    tbb::task_arena m_arena;
    size_t m_threads;
};

TEST(WorkRanges, AnyNumberOfThreadsDoEachItemOnce) {
    for (const size_t threads : {1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 300}) {
        Meeting meeting(threads);
        for (const size_t items : {size_t(0), size_t(1), threads - 1, threads, 3 * threads + 1})
            meeting.run(items, 0);
    }
}

TEST(WorkRanges, TheItemsOfThreadsThatNeverComeAreDone) {
    for (const size_t threads : {2, 9, 65, 200}) {
        Meeting meeting(threads);
        meeting.run(5 * threads, threads - 1);
        meeting.run(5 * threads, threads / 2);
    }
}

TEST(WorkRanges, CallsWithinCallsHaveRangesOfTheirOwn) {
    tbb::task_arena arena(12);
    arena.execute([] {
        WorkRanges outer(30);
        std::vector<int> times(30 * 20);
        outer.work([&](size_t i) {
            WorkRanges inner(20);
            inner.work([&](size_t j) { ++times[i * 20 + j]; });
            EXPECT_TRUE(inner.all_done());
        });
        EXPECT_TRUE(outer.all_done());
        EXPECT_EQ(times, std::vector<int>(30 * 20, 1));
    });
}

TEST(Team, PhasesOfAllKindsSeeWhatTheOneBeforeWrote) {
    static thread_local size_t prepared_for;  // the round of this thread's last EachThread
    tbb::task_arena arena(4);
    arena.execute([] {
        for (size_t round = 1; round <= 300; ++round) {
            const size_t items = round % 50;
            std::vector<size_t> first(items), second(items), third(items), prepared(items);
            run_phases(EachThread{[&] { prepared_for = round; }},
                       StreamPhase{items,
                                   [&](size_t i) {
                                       first[i] = i + 1;
                                       prepared[i] = prepared_for;
                                   }},
                       Phase{items, [&](size_t i) { second[i] = first[items - 1 - i]; }},
                       StreamPhase{items, [&](size_t i) { third[i] = second[items - 1 - i]; }});
            EXPECT_EQ(prepared_for, round) << "of the calling thread";
            EXPECT_EQ(prepared, std::vector<size_t>(items, round));
            for (size_t i = 0; i < items; ++i) ASSERT_EQ(third[i], i + 1);
        }
    });
}

}  // namespace
}  // namespace pagewheel::kernels
