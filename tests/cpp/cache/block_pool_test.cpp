#include "cache/block_pool.hpp"

#include <gtest/gtest.h>

#include <set>

namespace pagewheel {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnce) {
    BlockPool pool(5);
    std::set<BlockId> taken;
    while (pool.num_free() > 0) taken.insert(pool.take());
    EXPECT_EQ(taken, (std::set<BlockId>{0, 1, 2, 3, 4}));
    EXPECT_THROW(pool.take(), std::logic_error);
}

TEST(BlockPool, FreesASharedBlockWithItsLastReference) {
    BlockPool pool(2);
    const BlockId block = pool.take();
    pool.share(block);
    pool.release(block);
    EXPECT_EQ(pool.num_free(), 1u);
    pool.release(block);
    EXPECT_EQ(pool.num_free(), 2u);
    pool.check_integrity();
}

TEST(BlockPool, RefusesToReleaseOrShareAFreeBlock) {
    BlockPool pool(2);
    const BlockId block = pool.take();
    pool.release(block);
    EXPECT_THROW(pool.release(block), std::logic_error);
    EXPECT_THROW(pool.share(block), std::logic_error);
    pool.check_integrity();
}

}  // namespace
}  // namespace pagewheel
