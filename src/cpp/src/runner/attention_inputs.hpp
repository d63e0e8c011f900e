// What attention is told about a batch: lengths, block tables, evicted caches; and the scores it
// gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "eviction/layer_cache.hpp"
#include "eviction/slot_table.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/passes.hpp"
#include "kernels/batch_tables.hpp"
#include "model/cache_geometry.hpp"
#include "model/rotary.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "runner/model_inputs.hpp"
#include "scheduling/sequence.hpp"

namespace pagewheel {

/// Fills the inputs of one kind of attention. Filling them allocates nothing unless a batch is
/// larger than any before.
class AttentionInputs {
public:
    /// `layers` are those whose caches are evicted from, in the order of their caches; none:
    /// nothing is. Throws InvalidArgument if rotary.dims exceeds the head size.
    explicit AttentionInputs(std::vector<CacheLayer> layers) : m_layers(std::move(layers)) {
        for (const CacheLayer& layer : m_layers)
            check_argument(layer.rotary.dims <= layer.layout.key_size,
                           "the model folder describes ", layer.rotary.dims,
                           " rotary dimensions of heads that have ", layer.layout.key_size);
    }
    virtual ~AttentionInputs() = default;
    AttentionInputs(const AttentionInputs&) = delete;
    AttentionInputs& operator=(const AttentionInputs&) = delete;

    const std::vector<CacheLayer>& layers() const { return m_layers; }
    /// `windows` [batch entries]: last new tokens whose attention is wanted, 0: none; or empty.
    virtual void fill(ov::InferRequest& request, const Batch& batch,
                      const std::vector<size_t>& windows) = 0;
    /// After the inference, by layer: f32 [tokens held after the step] of a batch entry with a
    /// window. Valid until the next fill().
    virtual const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) = 0;
    /// From the next fill() on queries() answers. False where the attention does not tell them.
    virtual bool observe_queries() { return false; }
    /// As scores(): f32 [BatchTables::num_observed(window), heads * key size].
    virtual const std::vector<const float*>& queries(size_t /*entry*/) {
        static const std::vector<const float*> none;
        return none;
    }

protected:
    std::vector<CacheLayer> m_layers;
};

/// How many tokens of each sequence of a batch are in the cache, and where its new tokens and its
/// part of the block table begin.
struct BatchExtents {
    int32_t* past_lens;             ///< [sequences]
    int32_t* subsequence_begins;    ///< [sequences + 1]
    int32_t* block_indices_begins;  ///< [sequences + 1]
};

/// With `table` it also writes the block tables of sequences that have not evicted, in one pass
/// over sequences that lie all over memory.
void fill_extents(const Batch& batch, BatchExtents extents, int32_t* table = nullptr);

size_t count_blocks(const Batch& batch);

/// The layer's slot table of a sequence that has evicted, else null.
const SlotTable* slot_table_of(const Sequence& sequence, size_t layer);

/// Writes the block tables of all sequences, as layer `layer` holds them.
void fill_blocks(const Batch& batch, size_t layer, int32_t* table);

/// Where each entry's scores begin: contexts after the step, one after the other. Returns their
/// sum.
size_t fill_score_begins(const Batch& batch, std::vector<size_t>& begins);

/// The input batch_tables. Its tensor is kept from step to step, at its size, until a batch needs
/// more or a key has to rotate further than any before: first come the tables of angles, which
/// stay, then the tables of the batch, then the scores. Where layers have tables of their own, a
/// step writes no more of them than what has changed; where nothing was evicted, all have the same
/// one.
class NativeAttentionInputs final : public AttentionInputs {
public:
    static bool serves(const ov::CompiledModel& model);

    /// `rotary` empty: nothing is ever rotated. With `has_logits_indices` some attention of the
    /// model has queries for the logits indices alone.
    NativeAttentionInputs(const ov::CompiledModel& model, std::vector<CacheLayer> layers,
                          const std::vector<RotaryKind>& rotary, size_t block_size,
                          bool has_logits_indices);

    void fill(ov::InferRequest& request, const Batch& batch,
              const std::vector<size_t>& windows) override;
    const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) override;
    bool observe_queries() override {
        m_observes_queries = true;
        return true;
    }
    const std::vector<const float*>& queries(size_t entry) override;

private:
    using Layout = kernels::BatchTablesLayout;
    using Writer = kernels::BatchTablesWriter;

    struct Table {
        RotationTable table;
        size_t begin = 0;  ///< word of the tensor
    };
    /// How many tokens of each sequence come before its logits indices, and where these begin.
    struct LogitsExtents {
        int32_t* past_lens = nullptr;  ///< [sequences]
        int32_t* begins = nullptr;     ///< [sequences + 1]
    };
    /// What layers with states read and write; null where there are none.
    struct StateSlots {
        int32_t* sources = nullptr;  ///< [sequences]
        int32_t* targets = nullptr;  ///< [sequences]
        int32_t* splits = nullptr;   ///< [sequences]
    };
    /// How the keys of a layer rotate in the batch.
    struct Rotation {
        size_t num_rotated = 0, width = 1;
    };
    /// What the layers' tables of a batch entry are made of.
    struct Source {
        uint64_t sequence = 0;  ///< its number
        size_t num_starts = 0, num_evicted = 0, num_blocks = 0;

        bool operator==(const Source& other) const {
            return sequence == other.sequence && num_starts == other.num_starts &&
                   num_evicted == other.num_evicted && num_blocks == other.num_blocks;
        }
    };

    bool rotates(size_t layer) const {
        return m_layers[layer].rotary.dims > 0 && !m_rotation.empty();
    }
    /// Fills where nothing is ever evicted: all layers read one table, written at every step, as
    /// that costs less than to find out what has changed.
    void fill_shared(ov::InferRequest& request, const Batch& batch,
                     const std::vector<size_t>& windows);
    static BatchExtents add_extents(Writer& writer, size_t sequences);
    /// Nothing is added where sequences have no states.
    static StateSlots add_states(Writer& writer, const Batch& batch);
    static void fill_states(const Batch& batch, const StateSlots& slots);
    /// Nothing is added where no attention reads it.
    LogitsExtents add_logits_extents(Writer& writer, size_t sequences) const;
    /// To be called once the extents are filled.
    void fill_logits_extents(const Batch& batch, const std::vector<size_t>& windows,
                             const BatchExtents& extents, const LogitsExtents& of_logits) const;
    /// Takes down what the batch's tables are made of. True if it is what they were made of before.
    bool same_sources(const Batch& batch);
    Rotation rotation_of(size_t layer, const Batch& batch) const;
    /// Returns whether a table of angles grew.
    bool grow_rotation(const Batch& batch);
    /// Words that write_tables() writes for the batch.
    size_t count_words(const Batch& batch);
    /// A new tensor with the tables of angles in it.
    void allocate(ov::InferRequest& request, size_t words, size_t written);
    /// All that the step's sections but what attention writes hold, in a tensor that has room for
    /// both.
    void write_tables(ov::InferRequest& request, const Batch& batch, size_t written);
    void write_layer(Writer& writer, size_t layer, const Batch& batch) const;
    /// Zeros without `windows`.
    void write_windows(const std::vector<size_t>& windows, size_t num_sequences);
    /// Takes down which rows of observed queries are those of each batch entry. Returns their sum.
    size_t count_query_rows(const std::vector<size_t>& windows);
    void place_written(size_t layer_scores, size_t query_rows);

    InputTensor m_input;
    std::optional<LogitsIndices> m_indices;  // none: all attention has queries for all new tokens
    std::vector<Table> m_rotation;           // by rotary kind
    std::vector<Rotation> m_of_layers;       // of this step
    size_t m_num_numbers = 1;                // numbers that caches have: the highest plus one
    size_t m_block_size;
    ov::Tensor m_tensor;
    int32_t* m_words = nullptr;  // the tensor's: asking it checks types every time
    // Words of the tensor: where the step's sections begin, and room for them.
    size_t m_begin = 0, m_capacity = 0;
    size_t m_written = 0;  // room for what attention writes
    // What the tables in the tensor are made of, and where those are that change with every step.
    std::vector<Source> m_sources;
    std::vector<BlockId> m_blocks;
    BatchExtents m_extents{};
    LogitsExtents m_logits_extents;
    StateSlots m_states;
    int32_t* m_windows = nullptr;
    size_t m_tables_end = 0;  // 0: there are none
    // Where the scores of this step begin, and their number per layer.
    size_t m_scores_begin = 0, m_step_scores = 0;
    std::vector<size_t> m_score_begins;    // by batch entry
    std::vector<const float*> m_pointers;  // what scores() returns
    bool m_observes_queries = false;
    size_t m_query_size = 0;  // of all layers
    // Where each layer's observed queries begin, and those of each batch entry among its rows.
    std::vector<size_t> m_queries_begin, m_query_rows;
    std::vector<const float*> m_query_pointers;  // what queries() returns
};

/// The inputs that SDPAToPagedAttention makes. Where caches are evicted from, each layer has a
/// block table and scores; where they are not, some layers may have queries for the logits indices
/// alone, and inputs of those beside the others'. Keys are never rotated at read: whoever evicts
/// rotates them where they lie.
class OpenVinoAttentionInputs final : public AttentionInputs {
public:
    static bool serves(const ov::CompiledModel& model);

    /// Nothing is evicted.
    explicit OpenVinoAttentionInputs(const ov::CompiledModel& model);
    /// Throws InvalidArgument for a cache whose blocks are not plain rows of f32, bf16 or
    /// f16.
    OpenVinoAttentionInputs(const ov::CompiledModel& model,
                            const std::vector<OpenVinoAttentionLayer>& attention,
                            const CacheGeometry& geometry, const RotaryDescription& rotary);

    void fill(ov::InferRequest& request, const Batch& batch,
              const std::vector<size_t>& windows) override;
    const std::vector<const float*>& scores(ov::InferRequest& request, size_t entry) override;

private:
    struct Table {
        size_t owner;  ///< index of layers() whose cache it leads to
        InputTensor input;
    };
    /// The inputs that describe the sequences with logits indices.
    struct LogitsInputs {
        InputTensor past_lens, subsequence_begins, block_indices, block_indices_begins;
    };
    OpenVinoAttentionInputs(const ov::CompiledModel& model, std::vector<CacheLayer> layers);
    void fill_logits(ov::InferRequest& request, const Batch& batch,
                     const std::vector<size_t>& windows);

    LogitsIndices m_indices;
    LogitsInputs m_logits_inputs;
    InputTensor m_past_lens, m_subsequence_begins, m_block_indices_begins, m_max_context_len;
    std::vector<Table> m_tables;  // one of all layers, or one of each
    InputTensor m_windows;
    std::vector<size_t> m_outputs;         // with the scores of layers()
    std::vector<size_t> m_score_begins;    // by batch entry
    std::vector<const float*> m_pointers;  // what scores() returns
};

}  // namespace pagewheel
