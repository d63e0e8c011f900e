#include "cache/block_pool.hpp"

#include "check.hpp"

namespace pagewheel {

BlockPool::BlockPool(size_t num_blocks) : m_references(num_blocks, 0) {
    m_free.reserve(num_blocks);
    for (size_t i = num_blocks; i > 0; --i) m_free.push_back(BlockId(i - 1));
}

BlockId BlockPool::take() {
    check_invariant(!m_free.empty(), "a block was taken from an empty pool of ", size());
    const BlockId block = m_free.back();
    m_free.pop_back();
    m_references[block] = 1;
    return block;
}

void BlockPool::share(BlockId block) {
    check_invariant(m_references.at(block) > 0, "the free block ", block, " was shared");
    ++m_references[block];
}

void BlockPool::release(BlockId block) {
    check_invariant(m_references.at(block) > 0, "the free block ", block, " was released");
    if (--m_references[block] == 0) m_free.push_back(block);
}

void BlockPool::check_integrity() const {
    std::vector<bool> is_free(size(), false);
    for (BlockId block : m_free) {
        check_invariant(!is_free[block], "block ", block, " is free twice");
        check_invariant(m_references[block] == 0, "the free block ", block, " has ",
                        m_references[block], " references");
        is_free[block] = true;
    }
    for (size_t i = 0; i < size(); ++i)
        check_invariant(is_free[i] || m_references[i] > 0, "block ", i, " is lost");
}

}  // namespace pagewheel
