#include "cache/prefix_tree.hpp"

#include <gtest/gtest.h>

#include "cache/block_store.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 4;
using Tokens = std::vector<int64_t>;

class PrefixTreeTest : public testing::Test {
protected:
    /// Inserts as a sequence would, and lets go; returns the blocks.
    std::vector<BlockId> insert(const Tokens& tokens, const PrefixKey& key = {}) {
        const auto blocks = insert_and_hold(tokens, key);
        release(blocks);
        return blocks;
    }
    std::vector<BlockId> insert_and_hold(const Tokens& tokens, const PrefixKey& key = {}) {
        std::vector<BlockId> blocks;
        NodeId parent = store.tree().root(key);
        for (size_t i = 0; i < tokens.size(); i += block_size) {
            const BlockId own = store.take();
            const size_t count = std::min(block_size, tokens.size() - i);
            parent = store.tree().insert(parent, &tokens[i], count, own);
            if (parent != own) {
                store.share(parent);
                store.release(own);
            }
            blocks.push_back(parent);
        }
        return blocks;
    }
    void release(const std::vector<BlockId>& blocks) {
        for (size_t i = blocks.size(); i-- > 0;) store.release(blocks[i]);
        store.check_integrity();
    }
    PrefixMatch match(const Tokens& tokens, const PrefixKey& key = {}) {
        PrefixMatch match;
        store.tree().match(key, tokens.data(), tokens.size(), match);
        return match;
    }

    BlockStore store{8, block_size};
};

TEST_F(PrefixTreeTest, MatchesToTheTokenInsideABlock) {
    const auto blocks = insert({1, 2, 3, 4, 5, 6, 7, 8});
    const PrefixMatch found = match({1, 2, 3, 4, 5, 6, 9, 9, 9});
    EXPECT_EQ(found.blocks, (std::vector<BlockId>{blocks[0]}));
    EXPECT_EQ(found.partial, blocks[1]);
    EXPECT_EQ(found.num_partial, 2u);
    EXPECT_EQ(found.num_tokens, 6u);
    EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8, 9}).blocks, blocks);
    EXPECT_EQ(match({1, 2, 3}).num_tokens, 3u);
    EXPECT_EQ(match({2, 2, 3, 4}).num_tokens, 0u);
    EXPECT_EQ(match({}).num_tokens, 0u);
}

TEST_F(PrefixTreeTest, FindsTheSiblingWithTheMostCommonTokens) {
    insert({5, 1, 1, 1});
    insert({5, 3, 1, 1});
    const auto best = insert({5, 3, 2, 2});
    insert({5, 3, 4, 4});
    insert({5, 9, 9, 9});
    const PrefixMatch found = match({5, 3, 2, 3});
    EXPECT_EQ(found.partial, best[0]);
    EXPECT_EQ(found.num_partial, 3u);
    EXPECT_EQ(match({5, 3, 3, 9}).num_partial, 2u);
    EXPECT_EQ(match({5, 8, 8, 8}).num_partial, 1u);
    EXPECT_EQ(match({4, 1, 1, 1}).num_partial, 0u);
}

TEST_F(PrefixTreeTest, SaltAndAdapterKeepPrefixesApart) {
    insert({1, 2, 3, 4}, {"tenant", 0});
    EXPECT_EQ(match({1, 2, 3, 4}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 3, 4}, {"other", 0}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 3, 4}, {"tenant", 1}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 3, 4}, {"tenant", 0}).num_tokens, 4u);
}

TEST_F(PrefixTreeTest, ForgetsThePrefixesOfOneSaltAlone) {
    insert({1, 2, 3, 4, 5, 6}, {"tenant", 0});
    insert({1, 2, 3, 4}, {"tenant", 1});
    insert({1, 2, 3, 4, 5}, {"other", 0});
    insert({1, 2, 3, 4});
    store.tree().clear(std::set<std::string>{"tenant", "nobody"});
    store.tree().check_integrity();
    EXPECT_EQ(match({1, 2, 3, 4}, {"tenant", 0}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 3, 4}, {"tenant", 1}).num_tokens, 0u);
    EXPECT_EQ(match({1, 2, 3, 4, 5}, {"other", 0}).num_tokens, 5u);
    EXPECT_EQ(match({1, 2, 3, 4}).num_tokens, 4u);
    EXPECT_EQ(store.pool().num_idle(), 3u);
}

TEST_F(PrefixTreeTest, KeepsOneCopyOfTokensThatComeTwice) {
    const auto first = insert_and_hold({1, 2, 3, 4, 5});
    const auto second = insert_and_hold({1, 2, 3, 4, 5});
    EXPECT_EQ(first, second);
    EXPECT_EQ(store.pool().num_held(), 2u);
    release(second);
    release(first);
    EXPECT_EQ(store.pool().num_idle(), 2u);
}

TEST_F(PrefixTreeTest, ALongerTailReplacesItsBeginning) {
    insert({1, 2, 3, 4, 5});
    insert({1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(store.tree().size(), 2u);
    insert({1, 2, 3, 4, 5, 6});  // adds nothing
    EXPECT_EQ(store.tree().size(), 2u);
    EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}).num_tokens, 7u);
}

TEST_F(PrefixTreeTest, ATailGrowsInItsOwnBlock) {
    const BlockId block = store.take();
    const Tokens tokens{1, 2, 3, 4};
    const NodeId root = store.tree().root({});
    EXPECT_EQ(store.tree().insert(root, tokens.data(), 2, block), block);
    EXPECT_EQ(store.tree().insert(root, tokens.data(), 4, block), block);
    EXPECT_EQ(match(tokens).blocks, std::vector<BlockId>{block});
    release({block});
}

TEST_F(PrefixTreeTest, ATailThatIsHeldStaysBesideALongerOneAndGoesWithItsLastHolder) {
    const auto held = insert_and_hold({1, 2, 3, 4, 5, 6});
    insert({1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}).num_tokens, 8u);
    EXPECT_TRUE(store.tree().evict());  // the longer one, which nobody holds
    EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}).num_tokens, 6u);

    insert({1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(store.tree().size(), 3u);
    release(held);
    EXPECT_EQ(store.tree().size(), 2u);
    EXPECT_EQ(match({1, 2, 3, 4, 5, 6, 7, 8}).num_tokens, 7u);
    EXPECT_EQ(store.pool().num_free(), 6u);
}

TEST_F(PrefixTreeTest, ATailGrowsPastTheLongerOnesOfOthers) {
    const auto own = insert_and_hold({1, 2});
    insert({1, 2, 5});
    const Tokens tokens{1, 2, 7, 8};
    EXPECT_EQ(store.tree().insert(store.tree().root({}), tokens.data(), 4, own[0]), own[0]);
    store.check_integrity();
    EXPECT_EQ(match(tokens).blocks, own);
    EXPECT_EQ(match({1, 2, 5}).num_tokens, 3u);
    release(own);
}

TEST_F(PrefixTreeTest, VisitsTheTokensOfATailBesideALongerOneOnce) {
    const auto held = insert_and_hold({1, 2});
    const auto longer = insert({1, 2, 3});
    std::vector<BlockId> visited;
    store.tree().visit(
        [&](const PrefixKey&, NodeId, BlockId block, const Tokens&) { visited.push_back(block); });
    EXPECT_EQ(visited, longer);
    release(held);
}

TEST_F(PrefixTreeTest, EvictsTheLeastRecentlyUsedLeafFirst) {
    const auto old_one = insert({1, 1, 1, 1, 2, 2, 2, 2});
    const auto new_one = insert({3, 3, 3, 3});
    const auto used_again = match({1, 1, 1, 1});
    for (BlockId block : used_again.blocks) store.share(block);
    release(used_again.blocks);
    ASSERT_TRUE(store.tree().evict());  // the second block of the first: not used again
    EXPECT_EQ(match({1, 1, 1, 1, 2}).num_tokens, 4u);
    ASSERT_TRUE(store.tree().evict());
    EXPECT_EQ(match({3, 3, 3, 3}).num_tokens, 0u);
    ASSERT_TRUE(store.tree().evict());
    EXPECT_FALSE(store.tree().evict());
    EXPECT_EQ(store.pool().num_free(), 8u);
    store.check_integrity();
}

TEST_F(PrefixTreeTest, EvictsNothingThatIsHeld) {
    const auto held = insert_and_hold({1, 1, 1, 1, 2, 2, 2, 2});
    insert({1, 1, 1, 1, 3, 3, 3, 3});
    EXPECT_EQ(store.tree().num_evictable(), 1u);
    EXPECT_TRUE(store.tree().evict());
    EXPECT_FALSE(store.tree().evict());
    release(held);
    EXPECT_EQ(store.tree().num_evictable(), 2u);
}

TEST_F(PrefixTreeTest, AnAncestorThatItsHolderEvictedTakesTheSubtreeAlong) {
    auto held = insert_and_hold({1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
    store.release(held[0]);
    EXPECT_EQ(store.tree().num_evictable(), 1u);
    store.check_integrity();
    EXPECT_TRUE(store.tree().evict());
    EXPECT_EQ(store.tree().size(), 0u);
    EXPECT_EQ(store.pool().num_free(), 6u);  // the two others are still held
    release({held[1], held[2]});
    EXPECT_EQ(store.pool().num_free(), 8u);
}

TEST_F(PrefixTreeTest, ClearForgetsWhatIsHeldToo) {
    const auto held = insert_and_hold({1, 1, 1, 1});
    insert({2, 2, 2, 2}, {"salt", 0});
    store.tree().clear();
    store.check_integrity();
    EXPECT_EQ(match({1, 1, 1, 1}).num_tokens, 0u);
    EXPECT_EQ(store.pool().num_free(), 7u);
    release(held);
    EXPECT_EQ(store.pool().num_free(), 8u);
}

TEST_F(PrefixTreeTest, TakesIdleBlocksWhenThePoolRunsDry) {
    insert({1, 1, 1, 1, 2, 2, 2, 2});
    insert({3, 3, 3, 3});
    std::vector<BlockId> taken;
    while (store.num_available() > 0) taken.push_back(store.take());
    EXPECT_EQ(taken.size(), 8u);
    EXPECT_EQ(store.tree().size(), 0u);
    EXPECT_THROW(store.take(), std::logic_error);
    release(taken);
}

}  // namespace
}  // namespace pagewheel
