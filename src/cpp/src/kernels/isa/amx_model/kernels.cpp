// AMX's kernels where there is no AMX: what they answer can be measured, not how fast they are.
#include "kernels/isa/amx_model/kernels.hpp"

#include "kernels/isa/amx/linear.hpp"
#include "kernels/isa/amx/unpack_f16.hpp"
#include "kernels/isa/amx_model/tiles.hpp"
#include "kernels/isa/avx512/kernels.hpp"

namespace pagewheel::kernels::amx_model {

Kernels kernels(CpuFeatures features) {
    Kernels all = avx512::kernels(features);
    all.linear.bf16 = amx::bf16_kernels<ModelTiles>(avx512::bf16_kernels());
    all.linear.bf16.unpack = amx::unpack_by_halves<amx::ModelHalves>;
    all.attention.prefill_bf16 = prefill_kernels_bf16();
    return all;
}

}  // namespace pagewheel::kernels::amx_model
