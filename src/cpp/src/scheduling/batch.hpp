// One step's work.
#pragma once

#include <cstddef>
#include <vector>

#include "scheduling/sequence.hpp"

namespace pagewheel {

/// Tokens [sequence->num_cached, + num_tokens) of a sequence, for which it holds enough blocks.
struct BatchEntry {
    Sequence* sequence;
    size_t num_tokens;
    /// Of how many of them, counted from the last, the logits are wanted.
    size_t num_logits;
    /// These are the sequence's last tokens: the last one's logits give the next token.
    bool samples;
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
