// Prefixes that stay.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "cache/block_store.hpp"

namespace pagewheel {

/// Holds the blocks of prefixes as a sequence would, so that they are not evicted.
class PrefixPins {
public:
    explicit PrefixPins(BlockStore& store) : m_store(store) {}

    /// Pins the tokens if all of them are in the tree; how many there are, from the first on.
    size_t pin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// False if exactly these tokens were not pinned.
    bool unpin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Puts the pinned prefixes into the tree again, after it was cleared.
    void restore();

    /// Blocks that are pinned, each counted once.
    size_t num_blocks() const { return m_holds.size(); }
    /// Pinned blocks that no sequence holds.
    size_t num_held_by_pins_alone() const;

private:
    using Prefix = std::pair<PrefixKey, std::vector<int64_t>>;

    BlockStore& m_store;
    std::map<Prefix, std::vector<BlockId>> m_pins;
    std::map<BlockId, uint32_t> m_holds;  // how many of the pins hold it
};

}  // namespace pagewheel
