// AMX's kernels where there is no AMX: what they answer can be measured, not how fast they are.
#include "kernels/isa/amx_model/kernels.hpp"

#include "kernels/isa/amx/panels.hpp"
#include "kernels/isa/amx_model/tiles.hpp"
#include "kernels/isa/avx512/kernels.hpp"

namespace pagewheel::kernels::amx_model {

Kernels kernels(CpuFeatures features) {
    Kernels all = avx512::kernels(features);
    all.linear.panels = amx::panel_kernels<ModelTiles>(avx512::panel_kernels());
    all.attention.many_rows_bf16 = prefill_kernels_bf16();
    return all;
}

}  // namespace pagewheel::kernels::amx_model
