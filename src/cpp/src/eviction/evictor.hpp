// Keeps sequences' caches within their budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cache/cache_size.hpp"
#include "eviction/layer_cache.hpp"
#include "eviction/slot_table.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {

/// Where a sequence stands before a step.
struct EvictionProgress {
    size_t held = 0;           ///< tokens in the cache
    size_t new_tokens = 0;     ///< of the step
    size_t to_prompt_end = 0;  ///< tokens still to be computed before one is generated
    bool decoding = false;
    bool in_chunks = false;  ///< it is evicted while its prompt is computed
};

/// What leaves one sequence's cache.
struct EvictionDecision {
    std::vector<std::vector<size_t>> dropped;  ///< by layer: slots, ascending
    std::vector<size_t> released;   ///< entries of Sequence::blocks that no layer needs, ascending
    std::vector<size_t> written;    ///< entries that survivors move to, ascending
    bool closes_positions = false;  ///< keys rotate, and new tokens' positions follow

    size_t num_dropped() const { return dropped.empty() ? 0 : dropped.front().size(); }
};

/// A decision falls when a sequence holds its budget and another token is to come: so much goes
/// that there is room for the next few. Where whole blocks go that is a block; else a sixteenth of
/// the budget and at most a block, so that nearly all of the budget is held at any time, while what
/// moves per token stays the same for every budget.
class Evictor {
public:
    /// `layers` in the order of the cache's inputs. `context_length`: positions that the model was
    /// made for, 0: not known. `rotated_in_place`: the model's rotary kinds, if keys are to be
    /// rotated in the cache, as an attention that cannot rotate them at read needs it. Throws
    /// InvalidArgument for a config that does not fit the block size.
    Evictor(const CacheEvictionConfig& config, std::vector<LayerCache> layers, size_t block_size,
            size_t context_length, const std::vector<RotaryKind>& rotated_in_place = {});

    const CacheEvictionConfig& config() const { return m_config; }
    const std::vector<LayerCache>& layers() const { return m_layers; }

    /// Tokens in the cache at which a prompt is evicted while it is computed. They fill their
    /// blocks: a prefix that is found again ends there, so that the next chunk is the same.
    size_t chunk_end() const {
        return blocks_for(m_config.get_max_cache_size() - m_room + m_chunk, m_block_size) *
               m_block_size;
    }
    /// Tokens that a generating sequence holds at most when a decision falls.
    size_t decode_end() const { return m_config.get_max_cache_size() + m_block_size; }
    /// Blocks a sequence needs at most at any time if it is evicted in chunks.
    size_t most_blocks() const { return chunk_end() / m_block_size + 1; }

    /// Last queries of a prompt that are observed; ObservedQueries::all for all.
    size_t prompt_window() const { return m_observed.prompt; }

    /// How many of the step's new tokens, the last ones, are observed.
    size_t window(const EvictionState& state, const EvictionProgress& progress) const;
    /// Takes down, after a step, scores [held] by layer of the last `window` queries.
    void observe(EvictionState& state, size_t held, size_t window,
                 const std::vector<const float*>& scores) const;
    bool observes_queries() const { return m_observed.queries; }
    /// Takes down, after observe(), the last `count` queries, by layer: f32 [count, heads * key
    /// size], rotated to their positions.
    void observe_queries(EvictionState& state, size_t held, size_t count,
                         const std::vector<const float*>& queries) const;
    /// Tokens held at which the next decision falls.
    size_t next_decision(const EvictionState& state) const {
        return std::max(m_config.get_max_cache_size(), state.first_decision);
    }
    /// Tokens that must go before another one is computed; 0 if it fits.
    size_t due(size_t held) const;
    /// What goes. `is_prefilling` as in EvictionView; `next_end`: the most tokens held when the
    /// next decision falls; `references` tells how many hold an entry. Throws what the policy
    /// throws and InvalidArgument for a wrong answer; nothing has changed then.
    EvictionDecision decide(EvictionState& state, const std::vector<BlockId>& blocks, size_t held,
                            size_t count, bool is_prefilling, size_t next_end,
                            const std::function<size_t(size_t entry)>& references) const;
    /// Moves survivors, and updates the slot tables as if the released entries were gone from
    /// `blocks`, which the caller does next. No entry of decision.written may be shared.
    void apply(const EvictionDecision& decision, EvictionState& state,
               const std::vector<BlockId>& blocks);

private:
    void prepare(EvictionState& state, size_t held) const;
    std::vector<size_t> choose(size_t layer, const EvictionState& state,
                               const std::vector<BlockId>& blocks, size_t held, size_t count,
                               bool is_prefilling) const;
    /// Rotates the keys of a layer whose slots have closed up, over the blocks that stay.
    void rotate_in_place(SlotTable& slots, const LayerCache& cache,
                         const std::vector<BlockId>& blocks) const;
    bool rotates_in_place() const { return !m_angles.empty(); }
    /// How many of a layer's oldest tokens the next one cannot see.
    size_t num_out_of_window(const CacheLayer& layer, const SlotTable& slots) const;
    /// What a decision takes has always left the layer's window: no policy chooses.
    bool never_asks(const CacheLayer& layer) const;

    CacheEvictionConfig m_config;
    std::vector<LayerCache> m_layers;
    size_t m_block_size, m_chunk;
    size_t m_room;            // tokens that fit after a decision
    size_t m_position_limit;  // positions stay below it; 0: they close up with each decision
    std::shared_ptr<EvictionPolicy> m_policy;
    ObservedQueries m_observed;
    std::vector<RotationTable> m_angles;  // by rotary kind; empty: the attention rotates keys
};

}  // namespace pagewheel
