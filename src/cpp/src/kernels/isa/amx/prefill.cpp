#include "kernels/isa/amx/kernels.hpp"
#include "kernels/isa/amx/prefill_tiles.hpp"
#include "kernels/isa/amx/tiles.hpp"
#include "kernels/isa/amx/vectors.hpp"

namespace pagewheel::kernels::amx {

PrefillKernels prefill_kernels_bf16() {
    return PrefillOnTiles<AmxVectors, InstructionTiles>::kernels();
}

}  // namespace pagewheel::kernels::amx
