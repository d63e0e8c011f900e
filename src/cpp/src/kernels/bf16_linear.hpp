// Linear layers with weights and activations in bf16, for calls of many rows. Internal.
#pragma once

#include "kernels/quantized_linear.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

/// quantized_linear() and gated_mlp() with Activations::bf16, by kernels that have products of
/// bf16.
void bf16_linear(const LinearKernels& kernels, const LinearInput& input,
                 const LinearOutput* outputs, size_t count, const RotaryAngles& angles);
void bf16_mlp(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
