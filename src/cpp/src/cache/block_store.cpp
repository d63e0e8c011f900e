#include "cache/block_store.hpp"

#include "base/check.hpp"

namespace pagewheel {

BlockStore::BlockStore(size_t num_blocks, size_t block_size)
    : m_pool(num_blocks), m_tree(m_pool, block_size) {}

BlockId BlockStore::take() {
    if (m_pool.num_free() == 0)
        check_invariant(m_tree.evict(), "no block is available of ", m_pool.size());
    return m_pool.take();
}

void BlockStore::share(BlockId block) {
    m_pool.share(block);
    if (m_pool.references(block) == 1) m_tree.on_held(block);
}

void BlockStore::release(BlockId block) {
    m_pool.release(block);
    if (m_pool.references(block) == 0 && m_pool.is_kept(block)) m_tree.on_released(block);
}

void BlockStore::check_integrity() const {
    m_pool.check_integrity();
    m_tree.check_integrity();
    check_invariant(m_tree.num_evictable() == m_pool.num_idle(), "the tree can evict ",
                    m_tree.num_evictable(), " blocks, and the pool has ", m_pool.num_idle(),
                    " idle ones");
}

}  // namespace pagewheel
