#include "kernels/linear_paths.hpp"

#include <cstring>

#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {
namespace {

/// Rows from which bf16 is no slower than int8, for weights of 4 and of 8 bits.
struct Path {
    const char* isa;
    size_t rows_of_4_bits, rows_of_8_bits;
};

constexpr Path paths[] = {
    // A prototype on a Sapphire Rapids, 2 cores, 2026-10: 0.6 to 0.8 TFLOPS on one core from 64
    // rows
    // on, where int8 with pairs has 0.2. Not measured with these kernels yet.
    {"amx", 32, 32},
    {"avx512", 64, 32},
};

}  // namespace

size_t rows_from_which_bf16_pays(Isa isa, int bits) {
    if (!has_bf16_activations(isa)) return never;
    for (const Path& path : paths)
        if (std::strcmp(path.isa, isa.name()) == 0)
            return bits == 4 ? path.rows_of_4_bits : path.rows_of_8_bits;
    return never;
}

}  // namespace pagewheel::kernels
