// AMX: linear layers in bf16 on tiles. Everything else is AVX-512's.
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/amx/panels.hpp"
#include "kernels/isa/amx/tiles.hpp"

namespace pagewheel::kernels::amx {

Kernels kernels(CpuFeatures features);

Kernels kernels(CpuFeatures features) {
    Kernels all = avx512::kernels(features);
    all.linear.panels = panel_kernels<InstructionTiles>(all.linear.panels);
    return all;
}

}  // namespace pagewheel::kernels::amx
