#include "kernels/linear_paths.hpp"

#include <cstring>

#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {
namespace {

/// From `rows` rows on bf16 has `speed` times the speed of int8, up to the next entry of the same
/// instruction set and bits.
struct Measured {
    const char* isa;
    int bits;
    size_t rows;
    double speed;
};

constexpr Measured table[] = {
    // Computed, not measured. A prototype on one core of a Sapphire Rapids unpacked 13 G weights
    // a second and multiplied at 0.7 TFLOPS, where int8 has 0.1 to 0.15 tera-operations.
    {"amx", 4, 16, 1.5},
    {"amx", 4, 32, 2.5},
    {"amx", 4, 64, 4},
    {"amx", 8, 16, 1.5},
    {"amx", 8, 32, 2.5},
    {"amx", 8, 64, 4},
    // A Zen 5, 2 cores, 2026-11-22 (docs/quantized_linear.md): the lower one of SmolLM2's
    // shapes (hidden size 576) and those of a model of 1B parameters (2,048).
    {"avx512", 4, 16, 0.8},
    {"avx512", 4, 64, 0.83},
    {"avx512", 4, 512, 0.88},
    {"avx512", 8, 16, 0.6},
    {"avx512", 8, 64, 0.74},
    {"avx512", 8, 512, 0.85},
};

}  // namespace

size_t rows_for_bf16(Isa isa, int bits, double speed) {
    if (!has_bf16_activations(isa)) return never;
    size_t rows = never;
    for (const Measured& entry : table) {
        if (entry.bits != bits || std::strcmp(entry.isa, isa.name()) != 0) continue;
        if (entry.speed < speed)
            rows = never;
        else if (rows == never)
            rows = entry.rows;
    }
    return rows;
}

}  // namespace pagewheel::kernels
