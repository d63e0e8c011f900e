// The kernels of an instruction set. Internal to the kernels.
#pragma once

#include "kernels/attention/tile.hpp"
#include "kernels/logits.hpp"
#include "kernels/quantized_linear_tile.hpp"

namespace pagewheel::kernels {

struct Kernels {
    LogitsKernels logits;
    LinearKernels linear;
    AttentionKernels attention;
};

// Those of kernels/isa/, for the table in kernels/isa.cpp.
namespace avx512 {
Kernels kernels(CpuFeatures features);
}
namespace avx2 {
Kernels kernels(CpuFeatures features);
}
namespace scalar {
Kernels kernels(CpuFeatures features);
}

}  // namespace pagewheel::kernels
