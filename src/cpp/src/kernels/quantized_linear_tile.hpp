// What quantized_linear.cpp, which divides the work, and the kernels, which do it, say to each
// other. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/bf16_kernels.hpp"
#include "kernels/half.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

/// A group of activations whose largest magnitude is below this counts as zero.
constexpr float smallest_maximum = 1e-30f;

/// Activations in one byte are -127..127 times their scale.
constexpr float activation_steps = 127;

/// Wide ones have 12 bits: -1904..1904 times a power of two. Values x1 and x2 of the places i and
/// 16 + i of a k-block share three signed bytes: x1 = 16 a + b and x2 = 16 b + e. So both are a
/// high byte (a, b) times 16 and a low one (b, e). And of weights w1 and w2 of 4 bits that share a
/// byte,
///     w1 x1 + w2 x2 = (16 w1) a + (w1 + 16 w2) b + w2 e
/// are three products of bytes instead of four. |x2| < 1920 keeps b within a byte.
constexpr int wide_activation_steps = 1904;

/// The bytes of a k-block of wide activations.
constexpr size_t wide_k_block_bytes = 48;

/// A float whose last place is 1. Integers of up to 2^22 added to its bits are added to the float.
constexpr float float_of_integers = 0x1.8p23f;

/// Rows of activations that lie together. Kernels multiply some of them at a time; the weights are
/// in the L1 cache for the others.
constexpr size_t max_block_rows = 12;

/// Activations of a block of rows, k-block after k-block: in a byte each, or wide
/// (wide_activation_steps), which `magic` makes them.
struct QuantizedBlock {
    size_t rows = 0;    // 1..max_block_rows
    size_t stride = 0;  // from k-block to k-block, in rows
    /// [k_blocks][stride][32], -127..127; zeros past k. Wide: [k_blocks][stride][48], the bytes a,
    /// b and e.
    int8_t* values = nullptr;
    float* scales = nullptr;  // [k_blocks][stride]: x' = value * scale
    float* sums = nullptr;    // [k_blocks][stride]: of x'
    float* magic = nullptr;   // [k_blocks][stride] or null: scale * float_of_integers

    bool wide() const { return magic != nullptr; }
    /// The bytes of a row's k-block.
    size_t value_bytes() const { return wide() ? wide_k_block_bytes : PackedLinear::k_block; }

    /// Rows [first, first + count) of it.
    QuantizedBlock part(size_t first, size_t count) const {
        QuantizedBlock block = *this;
        block.rows = count;
        block.values += first * value_bytes();
        block.scales += first;
        block.sums += first;
        if (wide()) block.magic += first;
        return block;
    }
};

/// x' = round(x * factor) * scale for a k-block of activations.
struct Scaling {
    float factor = 0, scale = 0;
};

/// The scaling of one byte, from the bits of the largest magnitude. NaN, whose bits are larger than
/// those of any number, counts as infinite, which spoils the row.
inline Scaling byte_scaling(uint32_t magnitude_bits) {
    const float maximum = float_of_bits(magnitude_bits);
    if (maximum < smallest_maximum) return {};
    if (!(maximum <= std::numeric_limits<float>::max()))
        return {0, std::numeric_limits<float>::infinity()};
    return {activation_steps / maximum, maximum / activation_steps};
}

/// The scaling of 12 bits: the smallest power of two that is large enough. Magnitudes of 2^114 or
/// more, where `magic` would overflow, count as infinite too.
inline Scaling wide_scaling(uint32_t magnitude_bits) {
    const float maximum = float_of_bits(magnitude_bits);
    if (maximum < smallest_maximum) return {};
    if (!(maximum < 0x1p114f)) return {0, std::numeric_limits<float>::infinity()};
    // 1904 is 1.859375 * 1024: with a larger mantissa the exponent is one more.
    const uint32_t exponent = (magnitude_bits + (9u << 17) - 1) >> 23;
    return {float_of_bits((264 - exponent) << 23), float_of_bits((exponent - 10) << 23)};
}

/// Calls body(std::integral_constant<PackedType, type>()) for a type that has to be unpacked.
template <class Body>
[[gnu::always_inline]] inline void with_type(PackedType type, const Body& body) {
    switch (type) {
        case PackedType::u4:
            return body(std::integral_constant<PackedType, PackedType::u4>());
        case PackedType::u8:
            return body(std::integral_constant<PackedType, PackedType::u8>());
        case PackedType::f4e2m1:
            return body(std::integral_constant<PackedType, PackedType::f4e2m1>());
        case PackedType::bf16:
            refuse_weights_of_bf16();
    }
}

/// Where the products of tiles and a block go.
struct TileOutput {
    float* output = nullptr;         // [rows, stride]
    const float* initial = nullptr;  // [rows, stride] or null: what the products are added to
    size_t stride = 0;
    size_t columns = PackedLinear::tile_rows;  // of 16 a tile, those that exist
};

/// The kernels of one ISA.
struct LinearKernels {
    /// Quantises columns [32 * k_block_begin, k) of x [block.rows, stride], of which `x` is the
    /// first row's column 32 * k_block_begin.
    void (*quantize)(const float* x, size_t stride, size_t k_block_begin, size_t k,
                     const QuantizedBlock& block);
    /// The tiles from `tile` on that the output's columns are of.
    void (*multiply)(const PackedLinear& weights, const uint8_t* tile, const QuantizedBlock& block,
                     const TileOutput& output);
    size_t most_tiles;  // of multiply()
    /// out[i] = gamma[i] * x[i] / sqrt(mean(x^2) + epsilon), i < k.
    void (*rms_norm)(const float* x, const float* gamma, float epsilon, size_t k, float* out);
    /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i], i < n.
    void (*swiglu)(float* gate, const float* up, size_t n);
    /// out[i] = x[i] / (1 + exp(-gate[i])), i < n.
    void (*gate)(const float* x, const float* gate, size_t n, float* out);
    /// Rotates the first `size` values of a head (RotaryAngles); cos and sin [size].
    void (*rotate)(float* head, size_t size, const float* cos, const float* sin);
    /// out[r] = the product of x and row r of rows [count, k].
    void (*inner_products)(const float* x, const float* rows, size_t k, size_t count, float* out);
    /// For Activations::bf16; without functions where there is none.
    Bf16Kernels bf16 = {};
};

/// Makes the function of columns [column, column + count) of a row's gate and up that of a plain
/// silu: `gate` / (1 + exp(-`gate`)) * `up`.
void prepare_gate(const GateFunction& function, size_t column, size_t count, float* gate,
                  float* up);

/// Whether prepare_gate() has nothing to do.
bool is_plain(const GateFunction& function);

/// The function of columns [column, column + count) of a row's gate and up, to `gate`. Both are
/// changed.
void apply_gate(const LinearKernels& kernels, const GateFunction& function, size_t column,
                size_t count, float* gate, float* up);

/// The scalar ones.
LinearKernels linear_reference();

/// quantized_linear() and gated_mlp() by these kernels.
void quantized_linear_by(const LinearKernels& kernels, const LinearInput& input,
                         const LinearOutput* outputs, size_t count,
                         const RotaryAngles& angles = {});
void gated_mlp_by(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
