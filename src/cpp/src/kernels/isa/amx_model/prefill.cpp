#include "kernels/isa/amx/prefill_tiles.hpp"
#include "kernels/isa/amx/vectors.hpp"
#include "kernels/isa/amx_model/kernels.hpp"
#include "kernels/isa/amx_model/tiles.hpp"

namespace pagewheel::kernels::amx_model {

PrefillKernels prefill_kernels_bf16() {
    return amx::PrefillOnTiles<amx::AmxVectors, ModelTiles>::kernels();
}

}  // namespace pagewheel::kernels::amx_model
