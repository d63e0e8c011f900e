// Some of a tensor's rows, as an OpenVINO operation on the CPU.
#pragma once

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

    GatherRows() = default;
    explicit GatherRows(const ov::OutputVector& inputs);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor&) override { return true; }
    size_t num_row_inputs() const override { return indices; }
    size_t row_count_input() const override { return indices; }
    size_t output_width(size_t output) const override;
    void run(const NativeInputs& inputs, float* const* outputs) const override;
};

}  // namespace pagewheel
