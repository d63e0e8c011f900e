// Which blocks of the KV cache are free, who holds the others, and what lies in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel {

using BlockId = int32_t;
/// A slot for the state of one sequence, in all layers that keep one.
using StateId = int32_t;
inline constexpr StateId no_state = -1;

/// Blocks, or states, [begin, end).
struct BlockRange {
    BlockId begin, end;
};

/// Hands out block ids in [0, size). A block is *free*; or *held* by the sequences that count as
/// its references; or *idle*: no sequence holds it, but the prefix tree keeps it for later ones.
/// What is held may be kept as well. Every operation is O(1), and free + idle + held = size.
class BlockPool {
public:
    explicit BlockPool(size_t num_blocks);

    size_t size() const { return m_references.size(); }
    size_t num_free() const { return m_free.size(); }
    size_t num_idle() const { return m_num_idle; }
    size_t num_held() const { return size() - num_free() - num_idle(); }

    /// A block with one reference. Needs num_free() > 0. The block freed last comes first: its
    /// memory is committed already and perhaps still in a cache.
    BlockId take();
    /// The same for a block whose memory something else has. True if the block's may cost some,
    /// which is to be given back.
    bool reserve(BlockId& block);
    /// Adds a reference to a block that is held or idle.
    void share(BlockId block);
    /// Drops a reference. With the last the block is idle if it is kept, else free.
    void release(BlockId block);
    uint32_t references(BlockId block) const { return m_references[block]; }

    /// The prefix tree keeps a held block from now on.
    void keep(BlockId block);
    /// The prefix tree keeps it no longer: an idle block is free now.
    void drop(BlockId block);
    bool is_kept(BlockId block) const { return m_kept[block]; }

    /// Blocks that were taken since their memory was given back, and may cost some.
    size_t num_touched() const { return m_num_touched; }
    bool is_touched(BlockId block) const { return m_touched[block]; }
    /// The free ones among them, which count as untouched from now on.
    std::vector<BlockRange> forget_free();

    /// Throws std::logic_error unless free, idle and held blocks add up, each id once.
    void check_integrity() const;

private:
    std::vector<uint32_t> m_references;  // by block: sequences that hold it
    std::vector<bool> m_kept;            // by block
    std::vector<BlockId> m_free;         // a stack
    size_t m_num_idle = 0;
    std::vector<bool> m_touched;  // by block
    size_t m_num_touched = 0;
};

/// The bytes of all layers' keys and values, by block, and states. One thread at a time.
class BlockMemory {
public:
    virtual ~BlockMemory() = default;

    /// The bytes of one block in all layers.
    virtual size_t block_bytes() const = 0;
    virtual void copy_block(BlockId from, BlockId to) = 0;
    /// Copy all block_bytes() of a block. They throw InvalidArgument where the memory is a
    /// device's.
    virtual void read_block(BlockId block, char* bytes) const = 0;
    virtual void write_block(BlockId block, const char* bytes) = 0;
    /// The system may have the memory of these, which hold nothing until they are written.
    virtual void give_back(const BlockRange& blocks) = 0;

    // ---- Of a model that has states.
    /// The bytes of one state in all layers; 0: there are none.
    virtual size_t state_bytes() const { return 0; }
    virtual void read_state(StateId, char*) const {}
    virtual void write_state(StateId, const char*) {}
    virtual void give_back_states(const BlockRange&) {}
};

}  // namespace pagewheel
