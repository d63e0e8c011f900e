// Attention over a paged KV cache, as an OpenVINO operation on the CPU.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/isa.hpp"
#include "kernels/paged_attention.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Ragged batches of prompt chunks and decodes over blocks of keys and values, with rotation at
/// read.
///
/// Keys and values are written where they belong first; then each query attends to its sequence's
/// tokens up to its own. Blocks that are rotated are read as if their keys had been written at
/// lower positions: the query is turned instead, and no key is ever rewritten.
///
/// Output: f32 [tokens, heads * value size]. `scores` is an input that is written through: an
/// output whose shape depends on data would cost a copy. Everything is checked at every call, and a
/// violation is an error that names both values.
///
/// There are two packed forms with fewer inputs: without rotation and scores (see AttentionTables),
/// and with all of it for all layers (see LayerTables).
class PagedAttention : public NativeOp {
public:
    OPENVINO_OP("PagedAttention", "pagewheel")

    enum Input : size_t {
        query,                 ///< f32 [tokens, heads * key size]
        key,                   ///< f32 [tokens, kv_heads * key size]
        value,                 ///< f32 [tokens, kv_heads * value size]
        key_blocks,            ///< u8 [blocks, kv_heads, block size, bytes of a key]; written
        value_blocks,          ///< u8 [blocks, kv_heads, block size, bytes of a value]; written
        past_lens,             ///< i32 [B] tokens in the cache before this call
        subsequence_begins,    ///< i32 [B + 1] into tokens
        block_indices,         ///< i32 [P] block tables, one after the other
        block_indices_begins,  ///< i32 [B + 1] into block_indices
        score_windows,         ///< i32 [B] last queries whose attention counts; 0: no scores
        scores,  ///< f32 [at least the sum of context lengths]; written, if any window
        rotated_block_indices,  ///< i32 [n] entries of block_indices, ascending
        rotation_deltas,        ///< i32 [n, 1] or [n, block size] rows of the table
        rotation_trig_lut,      ///< f32 [rows, rotary dims] cos | sin
        num_inputs,

        /// In the packed forms the last input: LayerTables where the attributes name a layer, else
        /// an AttentionTables, which has neither scores nor rotation.
        tables = past_lens,
    };
    static constexpr size_t num_packed_inputs = tables + 1;
    static constexpr size_t num_rows = key_blocks;  ///< inputs that are rows of activations

    struct Attributes {
        kernels::AttentionConfig config;
        /// First row of this layer's section: tables of several rotary bases are stacked.
        size_t lut_row_offset = 0;
        /// Of LayerTables, whose sections this op reads; none: its inputs are of another form.
        std::optional<size_t> layer;
        std::vector<float> sinks;         ///< [heads] or empty
        std::vector<float> alibi_slopes;  ///< [heads] or empty
    };

    PagedAttention() = default;
    PagedAttention(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return num_rows; }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const Attributes& attributes() const { return m_attributes; }
    void set_attributes(Attributes attributes) { m_attributes = std::move(attributes); }

private:
    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

}  // namespace pagewheel
