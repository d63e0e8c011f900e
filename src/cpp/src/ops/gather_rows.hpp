// Some rows of a tensor or of a packed matrix, as OpenVINO operations on the CPU.
#pragma once

#include <memory>

#include "kernels/packed_linear.hpp"
#include "openvino/op/op.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// What OpenVINO's Gather along dimension 0 does, where a region can hold it.
///
/// Inputs: x f32 [rows, 1, ..., width]; indices i32 or i64 [n], each of a row of x, else evaluation
/// throws InvalidArgument. Output: f32 [n, 1, ..., width].
class GatherRows : public NativeOp {
public:
    OPENVINO_OP("GatherRows", "pagewheel")

    enum Input : size_t { x, indices, num_inputs };

    explicit GatherRows(const ov::OutputVector& inputs);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor&) override { return true; }
    size_t num_row_inputs() const override { return indices; }
    size_t row_count_input() const override { return indices; }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;
};

/// Looks tokens up in a matrix that is packed for the vocabulary head, so that a model whose
/// embedding is its head holds one of them.
///
/// Input: ids i32 or i64, of any shape; each must be in [0, n), else evaluation throws
/// InvalidArgument. Output: f32 [ids' shape..., k], (value - zero point) * scale, rounded
/// once.
class QuantizedEmbedding : public ov::op::Op {
public:
    OPENVINO_OP("QuantizedEmbedding", "pagewheel")

    /// `table` has integer zero points.
    QuantizedEmbedding(const ov::Output<ov::Node>& ids,
                       std::shared_ptr<const kernels::PackedLinear> table);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    bool has_evaluate() const override { return true; }
    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override;

private:
    std::shared_ptr<const kernels::PackedLinear> m_table;
};

}  // namespace pagewheel
