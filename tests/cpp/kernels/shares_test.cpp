// Items that are divided among threads beforehand, alone and in phases.
#include "kernels/shares.hpp"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

TEST(Shares, OneThreadDoesAllItemsOfAllSharesInOrderOfItsOwn) {
    tbb::task_arena arena(4);
    arena.execute([] {
        Shares shares(10);
        std::vector<int> times(10);
        shares.work([&](size_t i) { ++times[i]; });
        EXPECT_EQ(times, std::vector<int>(10, 1));
        EXPECT_TRUE(shares.all_done());
    });
}

TEST(Shares, NothingIsDoneAtOnce) {
    Shares shares(0);
    EXPECT_TRUE(shares.all_done());
    shares.work([](size_t) { FAIL(); });
}

// All but the first of these threads find the share of their place taken and have none.
TEST(Shares, EachItemIsDoneOnceHoweverThreadsMeet) {
    std::mt19937 random(1);
    tbb::task_arena arena(3);
    arena.execute([&] {
        for (size_t round = 0; round < 300; ++round) {
            const size_t items = random() % 60;
            std::vector<std::atomic<int>> times(items);
            Shares shares(items);
            std::vector<std::thread> threads;
            for (size_t t = 0; t < 4; ++t)
                threads.emplace_back([&] { shares.work([&](size_t i) { ++times[i]; }); });
            for (std::thread& thread : threads) thread.join();
            EXPECT_TRUE(shares.all_done());
            for (const auto& one : times) ASSERT_EQ(one.load(), 1) << items << " items";
        }
    });
}

TEST(Team, PhasesOfAllKindsSeeWhatTheOneBeforeWrote) {
    tbb::task_arena arena(4);
    arena.execute([] {
        for (size_t round = 0; round < 300; ++round) {
            const size_t items = round % 50;
            std::vector<size_t> first(items), second(items), third(items);
            std::atomic<size_t> members{0};
            run_phases(EachThread{[&] { ++members; }},
                       StreamPhase{items, [&](size_t i) { first[i] = i + 1; }},
                       Phase{items, [&](size_t i) { second[i] = first[items - 1 - i]; }},
                       StreamPhase{items, [&](size_t i) { third[i] = second[items - 1 - i]; }});
            EXPECT_GE(members, 1u);
            EXPECT_LE(members, 4u);
            for (size_t i = 0; i < items; ++i) ASSERT_EQ(third[i], i + 1);
        }
    });
}

}  // namespace
}  // namespace pagewheel::kernels
