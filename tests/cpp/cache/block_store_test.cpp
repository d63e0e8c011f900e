// States of sequences beside blocks, in one budget.
#include "cache/block_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;

TEST(BlockStore, AStateHoldsTheBlocksThatItIsWorth) {
    BlockStore store(10, block_size, 3);
    EXPECT_EQ(store.states().size(), 3u);
    const StateId state = store.take_state();
    EXPECT_EQ(store.num_available(), 7u);
    store.check_integrity();
    store.share_state(state);
    store.release_state(state);
    EXPECT_EQ(store.num_available(), 7u);
    store.release_state(state);
    EXPECT_EQ(store.num_available(), 10u);
    EXPECT_THROW(store.release_state(state), std::logic_error);
    store.check_integrity();
}

TEST(BlockStore, AStateTakesTheBlocksOfPrefixesThatNobodyHolds) {
    BlockStore store(4, block_size, 3);
    const std::vector<int64_t> tokens{1, 2, 3, 4, 5, 6, 7, 8};
    NodeId parent = store.tree().root({});
    for (size_t i = 0; i < 2; ++i) {
        const BlockId block = store.take();
        parent = store.tree().insert(parent, &tokens[i * block_size], block_size, block);
    }
    store.release(parent);
    store.release(parent == 0 ? 1 : 0);
    EXPECT_EQ(store.tree().size(), 2u);
    store.take_state();
    EXPECT_EQ(store.tree().size(), 1u);
    EXPECT_EQ(store.num_available(), 1u);
    store.check_integrity();
}

/// What costs memory: a block or state from its first write on, until it is given back.
struct Memory {
    std::vector<bool> blocks, states;

    void give_back(BlockStore& store) {
        for (const BlockRange& range : store.forget_free())
            for (BlockId i = range.begin; i < range.end; ++i) blocks[size_t(i)] = false;
        for (const BlockRange& range : store.forget_free_states())
            for (StateId i = range.begin; i < range.end; ++i) states[size_t(i)] = false;
    }
    size_t cost(size_t blocks_per_state) const {
        return size_t(std::count(blocks.begin(), blocks.end(), true)) +
               size_t(std::count(states.begin(), states.end(), true)) * blocks_per_state;
    }
};

TEST(BlockStore, KnowsWhenBlocksAndStatesCostMoreThanTheBudget) {
    std::mt19937 random(1);
    size_t times = 0;
    for (int round = 0; round < 50; ++round) {
        const size_t per_state = 1 + random() % 4, size = 5 + random() % 20;
        BlockStore store(size, block_size, per_state);
        Memory memory{std::vector<bool>(size), std::vector<bool>(store.states().size())};
        std::vector<BlockId> blocks;
        std::vector<StateId> states;
        for (int i = 0; i < 1000; ++i) {
            const size_t choice = random() % 4;
            if (choice == 0 && store.num_available() > 0) {
                blocks.push_back(store.take());
                memory.blocks[size_t(blocks.back())] = true;
            } else if (choice == 1 && store.num_available() >= per_state) {
                states.push_back(store.take_state());
                memory.states[size_t(states.back())] = true;
            } else if (choice == 2 && !blocks.empty()) {
                store.release(blocks.back());
                blocks.pop_back();
            } else if (!states.empty()) {
                store.release_state(states.back());
                states.pop_back();
            }
            store.check_integrity();
            ASSERT_LE(memory.cost(per_state), store.num_touched());
            if (!store.exceeds_budget()) continue;
            ++times;
            memory.give_back(store);
            ASSERT_FALSE(store.exceeds_budget());
        }
    }
    EXPECT_GT(times, 1000u);
}

}  // namespace
}  // namespace pagewheel
