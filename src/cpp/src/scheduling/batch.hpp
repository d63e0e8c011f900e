// One step's work.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduling/sequence.hpp"

namespace pagewheel {

/// A span: tokens [sequence->num_cached, + num_tokens) of a sequence, which holds enough blocks for
/// them. A decode is a span of one token, or of more with drafts; a part of a prompt another.
struct BatchEntry {
    Sequence* sequence;
    size_t num_tokens;
    /// Of how many of them, counted from the last, the logits are wanted.
    size_t num_logits;
    /// Of those, how many give a next token: the last committed token's and the drafts'.
    size_t num_sampled;

    bool samples() const { return num_sampled > 0; }
};

/// A block to be copied before the step, because its holder is about to write and shares it.
struct BlockCopy {
    BlockId from, to;
};

struct Batch {
    std::vector<BatchEntry> entries;
    std::vector<BlockCopy> copies;
    size_t num_tokens = 0;

    bool empty() const { return entries.empty(); }
    void clear() {
        entries.clear();
        copies.clear();
        num_tokens = 0;
    }
};

}  // namespace pagewheel
