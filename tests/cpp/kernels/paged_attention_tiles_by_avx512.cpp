// Prefill chunks on emulated tiles with the vectors that AMX's kernels have, so that tests run
// these on processors that have AVX512_BF16 but no tiles.
#if defined(__x86_64__)
#include "kernels/isa/amx/prefill_tiles.hpp"
#include "kernels/isa/amx/vectors.hpp"
#include "support/emulated_tiles.hpp"
#include "support/prefill_on_emulated_tiles.hpp"

namespace pagewheel::kernels {

PrefillKernels prefill_on_emulated_tiles_by_avx512(CacheFormat format) {
    return amx::PrefillOnTiles<amx::AmxVectors, EmulatedTiles>::kernels(format);
}

}  // namespace pagewheel::kernels
#endif
