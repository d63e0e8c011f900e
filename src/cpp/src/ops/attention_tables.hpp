// The tables of a batch in one tensor, for all attention layers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "openvino/op/op.hpp"

namespace pagewheel {

/// past_lens, subsequence_begins, block_indices and block_indices_begins of PagedAttention, i32
/// each, one after the other in one i32 tensor.
///
/// The CPU plugin infers the shape of an operation it does not know at every inference, and makes
/// nodes of all its inputs for that: inputs cost about as much as a short attention does. Packed
/// once, the tables are one input of each layer instead of four.
class AttentionTables : public ov::op::Op {
public:
    OPENVINO_OP("AttentionTables", "pagewheel")

    static constexpr size_t num_tables = 4;
    using Sizes = std::array<size_t, num_tables>;
    using Tables = std::array<int32_t*, num_tables>;

    /// Entries that tables of these sizes take when packed.
    static size_t packed_size(const Sizes& sizes);
    /// Begins packed tables of these sizes; where each has its place.
    static Tables lay_out(int32_t* packed, const Sizes& sizes);

    AttentionTables() = default;
    /// The tables in the order of PagedAttention's inputs.
    explicit AttentionTables(const ov::OutputVector& tables);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override;
};

/// Where the tables are in an AttentionTables' output; views.
struct UnpackedTables {
    const int32_t* table[AttentionTables::num_tables] = {};
    size_t size[AttentionTables::num_tables] = {};

    /// Throws std::invalid_argument if the tensor is no such output.
    explicit UnpackedTables(const ov::Tensor& packed);
};

}  // namespace pagewheel
