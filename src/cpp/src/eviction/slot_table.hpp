// What each layer of a sequence's cache holds after evictions, and by how much its keys must
// rotate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"

namespace pagewheel {

/// Means of the queries that were observed, before their rotation.
struct QueryStatistics {
    size_t count = 0;
    std::vector<double> sum;             ///< [heads, head size]
    std::vector<double> sum_amplitudes;  ///< [heads, rotary dims / 2]

    /// A query [heads, head size] whose rotated pairs are (i, i + rotary_dims / 2).
    void add(const std::vector<float>& query, size_t head_size, size_t rotary_dims);
    std::vector<float> mean_query() const;
    std::vector<float> mean_amplitude() const;
};

/// One layer of one sequence. Slot s is the s-th token that this layer still holds: slots are in
/// the order of positions and without gaps.
///
/// All layers hold the same blocks, but each in an order of its own: layers drop different tokens,
/// and where a layer's survivors lie in a block that goes, they move to one that this layer alone
/// has no more use for.
struct SlotTable {
    /// Entry i of this layer's block table is Sequence::blocks[order[i]]; past its end, blocks[i].
    std::vector<uint32_t> order;
    // By slot:
    std::vector<int64_t> position;   ///< number of the token in the sequence
    std::vector<int64_t> read_at;    ///< the position that attention sees its key at
    std::vector<int32_t> delta;      ///< the position that its key lies at - read_at
    std::vector<float> score;        ///< attention received from the observed queries
    std::vector<int32_t> unseen_by;  ///< observed queries that could not see it
    int32_t num_queries = 0;         ///< observed; `score` is of all of them
    QueryStatistics queries;         ///< of a policy that wants them

    // What the attention op is told; changes with evictions only:
    std::vector<int32_t> rotated;  ///< entries of this layer's table with a delta, ascending
    std::vector<int32_t> deltas;   ///< [rotated] or, if per_token, [rotated, block size]
    bool per_token = false;

    /// The position that a slot's key is rotated to where it lies.
    int64_t written_at(size_t slot) const { return read_at[slot] + delta[slot]; }
    /// Observed queries that could see each slot.
    std::vector<int32_t> lifetimes() const;
    uint32_t entry(size_t i) const { return i < order.size() ? order[i] : uint32_t(i); }
    std::vector<BlockId> table(const std::vector<BlockId>& blocks) const;

    /// New tokens up to `held` slots; slot s holds token s + num_evicted, at a position that is
    /// `shift` lower.
    void extend(size_t held, size_t num_evicted, size_t shift);
    /// Adds scores [held] of the last `window` queries.
    void observe(const float* scores, size_t held, size_t window);
    void forget_scores();
    /// Slots that are not in `dropped` (ascending) close up.
    void compact(const std::vector<size_t>& dropped);
    /// Positions close up as well: slot s is read at position s.
    void close_positions();
    /// Rewrites rotated and deltas. A block whose tokens have one delta, or that is in part still
    /// to be filled by tokens that need none, tells which width is needed.
    void describe_rotation(size_t block_size);
    int32_t largest_delta() const;
};

/// What eviction knows of a sequence: copied where the sequence forks, empty again when it is
/// preempted.
struct EvictionState {
    std::vector<SlotTable> layers;
    size_t num_evicted = 0;
    size_t shift = 0;  ///< new tokens' positions are so much lower than their numbers
    size_t largest_delta = 0;
    /// The sequence may grow to its budget; else nothing is observed.
    bool may_evict = false;
    size_t start = 0;  ///< Sequence::num_starts that this belongs to
    /// Tokens held at which a decision falls that waits for the answer; 0: none does.
    size_t first_decision = 0;

    void clear() {
        layers.clear();
        num_evicted = shift = largest_delta = 0;
    }
};

}  // namespace pagewheel
