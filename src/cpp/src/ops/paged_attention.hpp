// Attention over a paged KV cache, as an OpenVINO operation on the CPU.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/paged_attention.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

struct PagedAttentionAttributes {
    kernels::AttentionConfig config;
    size_t layer = 0;                 ///< whose sections of the tables this op reads
    bool logits_indices = false;      ///< queries are those of kernels::Queries::LOGITS
    std::vector<float> sinks;         ///< [heads] or empty
    std::vector<float> alibi_slopes;  ///< [heads] or empty
};

/// Ragged batches of prefill chunks and decodes over blocks of keys and values, with rotation at
/// read.
///
/// Keys and values are written where they belong first; then each query attends to its sequence's
/// tokens up to its own. Blocks that are rotated are read as if their keys had been written at
/// lower positions: the query is rotated instead, and no key is ever rewritten.
///
/// Queries are all new tokens or, with `logits_indices`, those alone that the step computes to the
/// end, which may be none. A layer that writes no cache does not look at keys and values.
///
/// Output: f32 [queries, heads * value size]. Scores lie in the tables and are written through: an
/// output whose shape depends on data would cost a copy. Everything is checked at every call, and a
/// violation is an error that names both values.
///
/// The tables are one input for all layers, because each input of each layer costs the plugin time
/// at every inference.
class PagedAttention : public AttributedOp<PagedAttention, PagedAttentionAttributes> {
public:
    OPENVINO_OP("PagedAttention", "pagewheel")

    enum Input : size_t {
        query,         ///< f32 [queries, heads * key size]
        key,           ///< f32 [tokens, kv_heads * key size]
        value,         ///< f32 [tokens, kv_heads * value size]
        key_blocks,    ///< u8 [blocks, kv_heads, block size, bytes of a key]; written
        value_blocks,  ///< u8 [blocks, kv_heads, block size, bytes of a value]; written
        batch_tables,  ///< i32 [words]: kernels::BatchTablesLayout; scores are written
        num_inputs
    };
    static constexpr size_t num_rows = key_blocks;  ///< inputs that are rows of activations

    PagedAttention() = default;
    PagedAttention(const ov::OutputVector& inputs, Attributes attributes)
        : Base(inputs, std::move(attributes)) {
        constructor_validate_and_infer_types();
    }

    void validate_and_infer_types() override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return num_rows; }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;
    void set_attributes(Attributes attributes) { m_attributes = std::move(attributes); }
};

}  // namespace pagewheel
