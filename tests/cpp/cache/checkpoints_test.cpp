// States that the prefix tree keeps.
#include "cache/checkpoints.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "cache/block_store.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;
using Tokens = std::vector<int64_t>;

class CheckpointsTest : public testing::Test {
protected:
    /// Puts the tokens into the tree as a sequence would; returns the node of each block.
    std::vector<NodeId> insert(const Tokens& tokens) {
        std::vector<NodeId> nodes{store.tree().root({})};
        for (size_t i = 0; i < tokens.size(); i += block_size) {
            const size_t count = std::min(block_size, tokens.size() - i);
            const BlockId own = store.take();
            nodes.push_back(store.tree().insert(nodes.back(), &tokens[i], count, own));
            store.release(own);
        }
        return nodes;
    }
    /// Leaves a checkpoint after all of the tokens, which are in the tree.
    StateId leave(const Tokens& tokens, size_t saves) {
        const size_t last = (tokens.size() - 1) / block_size * block_size;
        const std::vector<NodeId> nodes = insert(tokens);
        const StateId state = store.take_state();
        store.keep_checkpoint(nodes[nodes.size() - 2], &tokens[last], tokens.size() - last, state,
                              saves);
        store.release_state(state);
        store.check_integrity();
        return state;
    }
    PrefixMatch match(const Tokens& tokens) {
        PrefixMatch match;
        store.tree().match({}, tokens.data(), tokens.size(), match);
        return match;
    }

    BlockStore store{40, block_size, 2, 3};
};

TEST_F(CheckpointsTest, AMatchEndsAtTheLongestOne) {
    insert({1, 2, 3, 4, 5, 6, 7, 8, 9});
    const StateId third = leave({1, 2, 3}, 3), sixth = leave({1, 2, 3, 4, 5, 6}, 3);
    const PrefixMatch found = match({1, 2, 3, 4, 5, 6, 7, 9});
    EXPECT_EQ(found.num_in_blocks, 7u);
    EXPECT_EQ(found.num_tokens, 6u);
    EXPECT_EQ(found.state, sixth);
    EXPECT_EQ(found.blocks.size(), 1u);
    EXPECT_EQ(found.num_partial, 2u);
    // The block that holds token 3 is full; what comes after that token is not taken.
    const PrefixMatch shorter = match({1, 2, 3, 4, 5, 9});
    EXPECT_EQ(shorter.num_tokens, 3u);
    EXPECT_EQ(shorter.state, third);
    EXPECT_EQ(shorter.num_partial, 3u);
    EXPECT_TRUE(shorter.blocks.empty());
    EXPECT_EQ(match({1, 2, 9}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 9}).num_in_blocks, 2u);
}

TEST_F(CheckpointsTest, IsFoundBesideTokensThatAreCloserInTheirOrder) {
    insert({1, 2, 3, 7});
    const StateId state = leave({1, 2}, 1);
    leave({1, 3, 1}, 1);
    EXPECT_EQ(match({1, 2, 9}).state, state);
    EXPECT_EQ(match({1, 2, 3, 8}).state, state);
    EXPECT_EQ(match({1, 3, 0}).state, no_state);
}

TEST_F(CheckpointsTest, AFullBlockEndsAtABlock) {
    const StateId state = leave({1, 2, 3, 4, 5, 6, 7, 8}, 8);
    const PrefixMatch found = match({1, 2, 3, 4, 5, 6, 7, 8, 9});
    EXPECT_EQ(found.state, state);
    EXPECT_EQ(found.blocks.size(), 2u);
    EXPECT_EQ(found.num_partial, 0u);
}

TEST_F(CheckpointsTest, TheLeastUsefulOneLeavesWhereThereIsNoRoom) {
    leave({1}, 8);
    leave({2}, 3);
    leave({3}, 6);
    leave({4}, 4);  // in the place of 2
    EXPECT_EQ(match({2}).state, no_state);
    EXPECT_NE(match({1}).state, no_state);
    leave({5}, 2);  // 4 is worth 3 + 4, and 3 only 6
    EXPECT_EQ(match({3}).state, no_state);
    store.tree().checkpoints().touch(match({4}).state);  // 6 + 4
    leave({6}, 9);                                       // 1 is worth 8, 5 is worth 6 + 2
    leave({7}, 9);
    EXPECT_EQ(match({1}).state, no_state);
    EXPECT_EQ(match({5}).state, no_state);
    EXPECT_NE(match({4}).state, no_state);
}

TEST_F(CheckpointsTest, OneIsEnoughForTheSameTokens) {
    const StateId first = leave({1, 2, 3}, 3);
    leave({1, 2, 3}, 3);
    EXPECT_EQ(match({1, 2, 3}).state, first);
    EXPECT_EQ(store.tree().checkpoints().size(), 1u);
    EXPECT_EQ(store.states().num_idle(), 1u);
}

TEST_F(CheckpointsTest, LeavesWithTheLastBlockThatHasItsTokens) {
    const StateId state = leave({1, 2, 3}, 3);
    insert({1, 2, 3, 4});  // the shorter block is superfluous
    EXPECT_EQ(match({1, 2, 3}).state, state);
    store.check_integrity();
    while (store.tree().evict()) store.check_integrity();
    EXPECT_EQ(store.tree().checkpoints().size(), 0u);
    EXPECT_EQ(store.pool().num_free(), 40u);
}

TEST_F(CheckpointsTest, GivesItsBlocksToWhoeverNeedsThem) {
    leave({1, 2, 3}, 3);
    EXPECT_EQ(store.num_available(), 40u);
    EXPECT_EQ(store.pool().num_free(), 37u);
    for (size_t i = 0; i < 40; ++i) store.take();
    store.check_integrity();
    EXPECT_EQ(store.tree().checkpoints().size(), 0u);
}

TEST_F(CheckpointsTest, APinnedOneStays) {
    PrefixPins pins(store);
    leave({1, 2, 3, 4, 5}, 1);
    EXPECT_EQ(pins.pin({}, {1, 2, 3, 4, 5}), 5u);
    EXPECT_EQ(pins.num_blocks(), 4u);
    for (int64_t token = 10; token < 20; ++token) leave({token}, 5);
    store.tree().clear();
    EXPECT_EQ(match({1, 2, 3, 4, 5}).num_tokens, 0u);
    pins.restore();
    EXPECT_EQ(match({1, 2, 3, 4, 5}).num_tokens, 5u);
    EXPECT_TRUE(pins.unpin({}, {1, 2, 3, 4, 5}));
    store.tree().clear();
    store.check_integrity();
    EXPECT_EQ(store.pool().num_free(), 40u);
}

}  // namespace
}  // namespace pagewheel
