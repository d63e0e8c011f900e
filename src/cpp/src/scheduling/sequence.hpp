// One token stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"

namespace pagewheel {

/// Tokens of a sequence and where their keys and values lie.
///
/// Tokens [0, num_cached) are in the cache: token i in slot i % block_size of blocks[i /
/// block_size]. A sequence that waits holds no blocks. Owned by its request; the scheduler changes
/// blocks and num_cached, the step loop appends tokens.
struct Sequence {
    std::vector<int64_t> tokens;  ///< prompt, then what was generated
    size_t prompt_length = 0;
    size_t num_cached = 0;
    std::vector<BlockId> blocks;
    bool wants_prompt_logits = false;  ///< of every prompt token, not of the last alone
    void* owner = nullptr;  ///< the request's record of this sequence; opaque to the scheduler

    size_t num_uncached() const { return tokens.size() - num_cached; }
    /// Only the newest token is to be computed: it gives the next.
    bool is_decoding() const { return num_cached > 0 && num_uncached() == 1; }
};

}  // namespace pagewheel
