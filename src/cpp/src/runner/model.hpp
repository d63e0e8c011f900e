// The seam under the engine: what it asks of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cache/block_pool.hpp"
#include "eviction/layer_cache.hpp"
#include "model/rotary.hpp"
#include "scheduling/sequence.hpp"

namespace pagewheel {

/// Rows of logits, in the order of the batch's entries and their tokens. Valid until the next run;
/// the sampler may change them.
struct Logits {
    float* data = nullptr;
    size_t rows = 0;
    size_t vocabulary = 0;

    float* row(size_t i) const { return data + i * vocabulary; }
};

/// A model with its cache. OpenVinoModel runs one; tests script one. One thread at a
/// time. What throwing from here ends: Engine::step().
class Model {
public:
    /// Microseconds of the latest run().
    struct Times {
        double fill = 0;  ///< batch to tensors, blocks copied
        double infer = 0;
    };

    virtual ~Model() = default;

    virtual size_t vocabulary() const = 0;
    /// The threads that it computes with.
    virtual size_t num_threads() const { return 1; }
    /// Up to so many rows of a step a row's bits do not depend on their number, as far as linear
    /// layers go.
    virtual size_t most_exact_rows() const { return std::numeric_limits<size_t>::max(); }
    /// How many tokens a block holds.
    virtual size_t block_size() const = 0;
    /// The bytes of one block's keys and values in all layers.
    virtual size_t block_bytes() const = 0;
    /// How many blocks take the memory of a sequence's state, 0 if no layer keeps one. See
    /// BlockStore.
    virtual size_t blocks_per_state() const { return 0; }
    /// Once, before all that follows.
    virtual void allocate_cache(size_t num_blocks) = 0;
    virtual BlockMemory& cache() = 0;
    /// What the contents of blocks depend on: model, device, precision, layout.
    virtual std::string cache_description() const = 0;

    /// Copies the batch's blocks and computes its tokens, whose keys, values and states are in the
    /// cache afterwards. With eviction the attention of the last windows[i] new tokens of entry i
    /// may be had from scores(i) then.
    virtual Logits run(const Batch& batch, const std::vector<size_t>& windows) = 0;
    virtual Times times() const = 0;

    // ---- For a head that drafts by what the model's layers give.
    /// Numbers of a hidden state; 0: run() gives none.
    virtual size_t hidden_size() const { return 0; }
    /// What the latest run() gave, f32 [rows, hidden_size()]: of all its tokens, of a head of those
    /// with logits. Null: nothing. Valid until the next run.
    virtual const float* hidden_states() { return nullptr; }
    /// Whether the model is a head.
    virtual bool reads_hidden_states() const { return false; }
    /// To be filled before a head's run(): f32 [num_tokens, hidden_size()], of the token before
    /// each of the batch's.
    virtual float* hidden_input(size_t /*num_tokens*/) { return nullptr; }
    /// The model's tokens that a head's logits are of, one by one; empty: all of them.
    virtual const std::vector<int64_t>& drafted_tokens() const {
        static const std::vector<int64_t> all;
        return all;
    }

    // ---- For eviction; of a model that was made for it.
    /// The cache by layer.
    virtual std::vector<LayerCache> layer_caches() const = 0;
    /// By layer that has a cache: f32 [tokens held after the step]. Valid until the next run.
    virtual const std::vector<const float*>& scores(size_t entry) = 0;
    /// From the next run() on queries() answers. False, and nothing changes, where they cannot be
    /// had or it is not known how they are rotated.
    virtual bool observe_queries() { return false; }
    /// As scores(): f32 [kernels::BatchTables::num_observed(windows[i]), heads * key size],
    /// the observed queries, rotated to their positions.
    virtual const std::vector<const float*>& queries(size_t /*entry*/) {
        static const std::vector<const float*> none;
        return none;
    }
    /// Kinds by which eviction rotates keys in the cache. Empty where keys are not rotated, or the
    /// attention does it when it reads them.
    virtual const std::vector<RotaryKind>& rotated_in_place() const = 0;
};

}  // namespace pagewheel
