#include "support/prefill_on_emulated_tiles.hpp"

#include "kernels/isa/amx/prefill_tiles.hpp"
#include "support/emulated_tiles.hpp"
#include "support/plain_vectors.hpp"

namespace pagewheel::kernels {

PrefillKernels prefill_on_emulated_tiles(CacheFormat format) {
    return amx::PrefillOnTiles<PlainVectors, EmulatedTiles>::kernels(format);
}

}  // namespace pagewheel::kernels
