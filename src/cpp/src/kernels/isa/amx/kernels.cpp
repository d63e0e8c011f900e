// AMX: linear layers and prefill chunks in bf16 on tiles. Everything else is AVX-512's.
#include "kernels/isa/avx512/kernels.hpp"
#include "kernels/isa/amx/linear.hpp"
#include "kernels/isa/amx/prefill_tiles.hpp"
#include "kernels/isa/amx/tiles.hpp"
#include "kernels/isa/amx/unpack_f16.hpp"
#include "kernels/isa/amx/vectors.hpp"
#include "kernels/kernels.hpp"

namespace pagewheel::kernels::amx {

Kernels kernels(CpuFeatures features) {
    Kernels all = avx512::kernels(features);
    all.linear.bf16 = bf16_kernels<AmxVectors, InstructionTiles>(avx512::bf16_kernels());
#ifdef PAGEWHEEL_ASSEMBLES_FP16
    if (features.has(CpuFeature::avx512_fp16))
        all.linear.bf16.unpack = unpack_by_halves<InstructionHalves>;
#endif
    all.attention.prefill_bf16 = PrefillOnTiles<AmxVectors, InstructionTiles>::kernels;
    return all;
}

}  // namespace pagewheel::kernels::amx
