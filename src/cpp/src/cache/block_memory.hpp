// What lies in the blocks, whatever holds it.
#pragma once

#include <cstddef>

#include "cache/block_pool.hpp"

namespace pagewheel {

/// The bytes of all layers' keys and values, by block. One thread at a time.
class BlockMemory {
public:
    virtual ~BlockMemory() = default;

    /// Of one block in all layers.
    virtual size_t block_bytes() const = 0;
    virtual void copy_block(BlockId from, BlockId to) = 0;
    /// All block_bytes() of one. Throw InvalidArgument where the memory is a device's.
    virtual void read_block(BlockId block, char* bytes) const = 0;
    virtual void write_block(BlockId block, const char* bytes) = 0;
    /// The system may have the memory of these, which hold nothing until they are written.
    virtual void give_back(const BlockRange& blocks) = 0;
};

}  // namespace pagewheel
