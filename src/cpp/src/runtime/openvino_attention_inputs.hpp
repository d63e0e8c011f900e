// A batch as OpenVINO's attention is told about it.
#pragma once

#include <vector>

#include "graph/openvino_attention.hpp"
#include "model/cache_geometry.hpp"
#include "model/rotary.hpp"
#include "runtime/attention_inputs.hpp"
#include "runtime/input_tensor.hpp"
#include "runtime/logits_indices.hpp"

namespace pagewheel {

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
    /// Of the sequences that have logits indices.
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
