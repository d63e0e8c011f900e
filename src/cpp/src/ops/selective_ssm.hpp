// Mamba 2's recurrence with states, as an OpenVINO operation on the CPU.
#pragma once

#include <array>
#include <memory>

#include "kernels/selective_ssm.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Continues the recurrence of each sequence by its new tokens, from its state, and writes the
/// state. Inputs are checked at every call, and a violation is an error that names both values.
class SelectiveSsm : public NativeOp {
public:
    OPENVINO_OP("SelectiveSsm", "pagewheel")

    /// Rows of all tokens, f32 [tokens, any width]; then two tensors: the states, u8 [states, state
    /// bytes], which are written, and i32 [words], kernels::BatchTablesLayout.
    enum Input : size_t { x, b, c, dt, gate, most_row_inputs };

    struct Attributes {
        std::shared_ptr<const kernels::SelectiveSsmConfig> config;
        bool has_gate = false;
        /// Where in its rows each input begins: one value may be several of them.
        std::array<size_t, most_row_inputs> first_columns{};
    };

    SelectiveSsm() = default;
    SelectiveSsm(const ov::OutputVector& inputs, Attributes attributes);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return most_row_inputs - !m_attributes.has_gate; }
    bool keeps_state() const override { return true; }
    size_t output_width(size_t) const override { return columns(x); }
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const Attributes& attributes() const { return m_attributes; }

private:
    /// How many an input has.
    size_t columns(size_t input) const;

    Attributes m_attributes;
    Isa m_isa = detected_isa();
};

}  // namespace pagewheel
