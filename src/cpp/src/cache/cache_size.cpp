#include "cache/cache_size.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "cache/available_memory.hpp"

namespace pagewheel {

size_t choose_num_blocks(size_t block_bytes, size_t wanted_blocks, size_t wanted_bytes,
                         double fraction, size_t useful_blocks) {
    if (wanted_blocks != 0) return wanted_blocks;
    const size_t bytes =
        wanted_bytes != 0 ? wanted_bytes : size_t(double(available_memory()) * fraction);
    const size_t fitting = bytes / block_bytes;
    check_argument(
        fitting > 0, "the KV cache gets ", bytes, " bytes",
        wanted_bytes != 0 ? "" : concat(", memory_fraction ", fraction, " of those free"),
        "; one block needs ", block_bytes);
    return wanted_bytes != 0 ? fitting : std::min(fitting, useful_blocks);
}

}  // namespace pagewheel
