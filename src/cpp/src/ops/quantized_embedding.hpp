// Rows of a packed matrix, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>

#include "kernels/packed_linear.hpp"
#include "openvino/op/op.hpp"

namespace pagewheel {

/// Looks tokens up in a matrix that is packed for the vocabulary head, so that a model whose
/// embedding is its head holds one of them.
///
/// Input: ids i32 or i64, of any shape; each must be in [0, n), else evaluation throws
/// InvalidArgument. Output: f32 [ids' shape..., k], (value - zero point) * scale, rounded
/// once.
class QuantizedEmbedding : public ov::op::Op {
public:
    OPENVINO_OP("QuantizedEmbedding", "pagewheel")

    QuantizedEmbedding() = default;
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
