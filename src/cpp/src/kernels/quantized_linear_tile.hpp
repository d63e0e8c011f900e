// What quantized_linear.cpp, which divides the work, and the kernels, which do it, say to each
// other. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/bf16_kernels.hpp"
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

/// Rows of activations that a tile of weights is multiplied with at once: the last block has fewer.
/// Their sums and a k-block's weights fit the registers; more gained nothing.
constexpr size_t max_block_rows = 8;

/// Rows of the paired product, whose sums lie in memory.
constexpr size_t max_paired_rows = 64;

/// Activations of a block of rows, k-block after k-block: in a byte each, paired, or wide.
///
/// `magic` makes them wide (wide_activation_steps).
///
/// `corrections` makes it a block for the paired product: Winograd's way to an inner product with
/// half the multiplications. For weights w (0..15) and values x of two places,
///     w1 x1 + w2 x2 = (w1 + x2 + 120) (w2 - 8 + x1) - (w1 + 120) (w2 - 8)
///                     - ((x2 + 120) x1 - 8 x2)
/// where the first product's factors are u8 and s8 to the last value, the second is the weights'
/// alone and the third the activations' alone. For that x must be -120..120: a k-block's values are
/// moved there together, by up to 7, and the weights' sum times that is taken off. Places i and
/// 16 + i of a k-block are such a pair for i < 12; the rest is multiplied as it is, which balances
/// additions against multiplications.
struct QuantizedBlock {
    size_t rows = 0;    // 1..8, paired 1..64
    size_t stride = 0;  // from k-block to k-block, in rows
    /// [k_blocks][stride][32], -127..127; zeros past k. Paired: places 0..11 and 16..27 moved, and
    /// of these the latter u8, 120 more. Wide: [k_blocks][stride][48], the bytes a, b and e.
    int8_t* values = nullptr;
    float* scales = nullptr;         // [k_blocks][stride]: x' = value * scale
    float* sums = nullptr;           // [k_blocks][stride]: of x'
    int32_t* corrections = nullptr;  // [k_blocks][stride] or null: minus the third products' sum
    int32_t* moves = nullptr;        // [k_blocks][stride] or null: minus the move, four times as s8
    float* magic = nullptr;          // [k_blocks][stride] or null: scale * float_of_integers

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
        if (corrections) {
            block.corrections += first;
            block.moves += first;
        }
        if (wide()) block.magic += first;
        return block;
    }
};

/// Places i < 12 are paired with 16 + i.
constexpr size_t paired_places = 12;

/// x' = round(x * factor) * scale for a k-block of activations.
struct Scaling {
    float factor = 0, scale = 0;
};

/// From a k-block's highest and its lowest value, or 0: steps are counted by the largest magnitude.
/// In one byte they are such that all values lie within 240 of them, as the paired product needs.
/// (With a margin for what rounding adds.)
inline Scaling byte_scaling(float highest, float lowest) {
    highest = std::max(highest, 0.0f);
    lowest = std::min(lowest, 0.0f);
    const float maximum =
        std::max(std::max(highest, -lowest), (highest - lowest) * (activation_steps / 239.9f));
    if (maximum < smallest_maximum) return {};
    return {activation_steps / maximum, maximum / activation_steps};
}

/// From the bits of the largest magnitude: the smallest power of two that is large enough. NaN,
/// whose bits are larger than those of any number, and magnitudes of 2^114 or more, where `magic`
/// would overflow, count as infinite, which spoils the row.
inline Scaling wide_scaling(uint32_t magnitude_bits) {
    float maximum;
    std::memcpy(&maximum, &magnitude_bits, sizeof maximum);
    if (maximum < smallest_maximum) return {};
    if (!(maximum < 0x1p114f)) return {0, std::numeric_limits<float>::infinity()};
    // 1904 is 1.859375 * 1024: with a larger mantissa the exponent is one more.
    const uint32_t exponent = (magnitude_bits + (9u << 17) - 1) >> 23;
    const uint32_t factor_bits = (264 - exponent) << 23, scale_bits = (exponent - 10) << 23;
    Scaling scaling;
    std::memcpy(&scaling.factor, &factor_bits, sizeof factor_bits);
    std::memcpy(&scaling.scale, &scale_bits, sizeof scale_bits);
    return scaling;
}

/// Calls body(std::integral_constant<PackedType, type>()).
template <class Body>
[[gnu::always_inline]] inline void with_type(PackedType type, const Body& body) {
    switch (type) {
        case PackedType::u4:
            return body(std::integral_constant<PackedType, PackedType::u4>());
        case PackedType::u8:
            return body(std::integral_constant<PackedType, PackedType::u8>());
        case PackedType::f4e2m1:
            return body(std::integral_constant<PackedType, PackedType::f4e2m1>());
    }
}

/// Where the products of a tile and a block go.
struct TileOutput {
    float* output = nullptr;         // [rows, stride]
    const float* initial = nullptr;  // [rows, stride] or null: what the products are added to
    size_t stride = 0;
    size_t columns = PackedLinear::tile_rows;  // of the tile's 16, those that exist
};

/// The kernels of one ISA.
struct LinearKernels {
    /// Quantises columns [32 * k_block_begin, k) of x [block.rows, stride], of which `x` is the
    /// first row's column 32 * k_block_begin. Only where there is multiply_pairs is a paired block
    /// taken.
    void (*quantize)(const float* x, size_t stride, size_t k_block_begin, size_t k,
                     const QuantizedBlock& block);
    void (*multiply)(const PackedLinear& weights, const uint8_t* tile, const QuantizedBlock& block,
                     const TileOutput& output);
    /// Gives the bits of multiply() for a paired block and weights of u4; null where there is none.
    void (*multiply_pairs)(const PackedLinear& weights, const uint8_t* tile,
                           const QuantizedBlock& block, const TileOutput& output);
    /// out[i] = gamma[i] * x[i] / sqrt(mean(x^2) + epsilon), i < k.
    void (*rms_norm)(const float* x, const float* gamma, float epsilon, size_t k, float* out);
    /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i], i < n.
    void (*swiglu)(float* gate, const float* up, size_t n);
    /// Rotates `heads` heads of `size`, one after the other (RotaryAngles); cos and sin [size].
    void (*rotate)(float* x, size_t heads, size_t size, const float* cos, const float* sin);
    /// out[r] = the product of x and row r of rows [count, k].
    void (*inner_products)(const float* x, const float* rows, size_t k, size_t count, float* out);
    /// For Activations::bf16; without functions where there is none.
    Bf16Kernels bf16 = {};
};

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
