// The kernels of an instruction set. Internal to the kernels.
#pragma once

#include "kernels/attention/tile.hpp"
#include "kernels/logits.hpp"
#include "kernels/quantized_linear_tile.hpp"
#include "kernels/selective_ssm.hpp"
#include "kernels/state_kernels.hpp"

namespace pagewheel::kernels {

struct Kernels {
    LogitsKernels logits;
    LinearKernels linear;
    AttentionKernels attention;
    StateKernels state;
    SsmKernels ssm;
};

}  // namespace pagewheel::kernels
