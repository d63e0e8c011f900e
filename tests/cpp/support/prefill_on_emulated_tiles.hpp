// AMX's prefill kernels on emulated tiles. They take long to compile, hence files of their own.
#pragma once

#include "kernels/attention/tile.hpp"

namespace pagewheel::kernels {

/// By plain vectors, for any processor.
PrefillKernels prefill_on_emulated_tiles(CacheFormat format);

/// By the vectors that AMX's kernels have, for processors with AVX512_BF16.
PrefillKernels prefill_on_emulated_tiles_by_avx512(CacheFormat format);

}  // namespace pagewheel::kernels
