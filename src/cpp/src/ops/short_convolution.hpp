// Causal depthwise convolution with states, as an OpenVINO operation on the CPU.
#pragma once

#include <memory>

#include "kernels/short_convolution.hpp"
#include "ops/native_op.hpp"

namespace pagewheel {

/// Convolves the new tokens of each sequence with those before, which its state holds, and writes
/// the state. Inputs are checked at every call, and a violation is an error that names both values.
class ShortConvolution : public NativeOp {
public:
    OPENVINO_OP("ShortConvolution", "pagewheel")

    enum Input : size_t {
        x,             ///< f32 [tokens, channels]
        states,        ///< u8 [states, state bytes]; written
        batch_tables,  ///< i32 [words]: kernels::BatchTablesLayout
        num_inputs
    };

    ShortConvolution() = default;
    ShortConvolution(const ov::OutputVector& inputs,
                     std::shared_ptr<const kernels::ShortConvolutionConfig> config);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override;
    bool visit_attributes(ov::AttributeVisitor& visitor) override;
    size_t num_row_inputs() const override { return states; }
    bool keeps_state() const override { return true; }
    size_t output_width(size_t) const override { return m_config->channels; }
    void run(const NativeInputs& inputs, float* const* outputs) const override;

    const kernels::ShortConvolutionConfig& config() const { return *m_config; }

private:
    std::shared_ptr<const kernels::ShortConvolutionConfig> m_config;
};

}  // namespace pagewheel
