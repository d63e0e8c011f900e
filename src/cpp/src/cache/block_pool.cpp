#include "cache/block_pool.hpp"

#include "base/check.hpp"

namespace pagewheel {

BlockPool::BlockPool(size_t num_blocks)
    : m_references(num_blocks, 0), m_kept(num_blocks, false), m_touched(num_blocks, false) {
    m_free.reserve(num_blocks);
    for (size_t i = num_blocks; i > 0; --i) m_free.push_back(BlockId(i - 1));
}

BlockId BlockPool::take() {
    check_invariant(!m_free.empty(), "a block was taken from an empty pool of ", size());
    const BlockId block = m_free.back();
    m_free.pop_back();
    m_references[block] = 1;
    if (!m_touched[block]) ++m_num_touched;
    m_touched[block] = true;
    return block;
}

bool BlockPool::reserve(BlockId& block) {
    const size_t touched = m_num_touched;
    block = take();
    m_touched[block] = false;
    return --m_num_touched < touched;
}

void BlockPool::share(BlockId block) {
    check_invariant(m_references.at(block) > 0 || m_kept[block], "the free block ", block,
                    " was shared");
    if (m_references[block]++ == 0) --m_num_idle;
}

void BlockPool::release(BlockId block) {
    check_invariant(m_references.at(block) > 0, "block ", block,
                    " was released, which no one holds");
    if (--m_references[block] > 0) return;
    if (m_kept[block])
        ++m_num_idle;
    else
        m_free.push_back(block);
}

void BlockPool::keep(BlockId block) {
    check_invariant(m_references.at(block) > 0 && !m_kept[block], "block ", block,
                    " cannot be kept: it is kept already or not held");
    m_kept[block] = true;
}

void BlockPool::drop(BlockId block) {
    check_invariant(m_kept.at(block), "block ", block, " was dropped, which is not kept");
    m_kept[block] = false;
    if (m_references[block] > 0) return;
    --m_num_idle;
    m_free.push_back(block);
}

std::vector<BlockRange> BlockPool::forget_free() {
    std::vector<BlockRange> ranges;
    for (size_t i = 0; i < size(); ++i) {
        if (!m_touched[i] || m_references[i] > 0 || m_kept[i]) continue;
        m_touched[i] = false;
        --m_num_touched;
        if (!ranges.empty() && ranges.back().end == BlockId(i))
            ++ranges.back().end;
        else
            ranges.push_back({BlockId(i), BlockId(i + 1)});
    }
    return ranges;
}

void BlockPool::check_integrity() const {
    std::vector<bool> is_free(size(), false);
    for (BlockId block : m_free) {
        check_invariant(!is_free[block], "block ", block, " is free twice");
        check_invariant(m_references[block] == 0, "the free block ", block, " has ",
                        m_references[block], " references");
        check_invariant(!m_kept[block], "the free block ", block, " is kept");
        is_free[block] = true;
    }
    size_t num_idle = 0;
    for (size_t i = 0; i < size(); ++i) {
        check_invariant(is_free[i] || m_references[i] > 0 || m_kept[i], "block ", i, " is lost");
        num_idle += m_references[i] == 0 && m_kept[i];
    }
    check_invariant(num_idle == m_num_idle, num_idle, " blocks are idle, and ", m_num_idle,
                    " counted as such");
}

}  // namespace pagewheel
