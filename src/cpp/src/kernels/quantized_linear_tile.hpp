// What quantized_linear.cpp, which divides the work, and the kernels, which do it, say to each
// other. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/panels.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

/// A group of activations whose largest magnitude is below this counts as zero.
constexpr float smallest_maximum = 1e-30f;

/// Activations in one byte are -127..127 times their scale.
constexpr float activation_steps = 127;

/// In two bytes they are -32512..32512 times it: 256 * high + low, both signed.
constexpr float wide_activation_steps = 127 * 256;

/// Rows of activations that a tile of weights is multiplied with at once: the last block has fewer.
/// Their sums and a k-block's weights fit the registers; more gained nothing.
constexpr size_t max_block_rows = 8;

/// The same of the paired product, whose sums lie in memory.
constexpr size_t max_paired_rows = 64;

/// Activations of a block of rows in one or two bytes each, k-block after k-block.
///
/// `low_values` makes them two: x' = (256 * value + low value) * scale, with as many steps on
/// either side of zero.
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
    /// of these the latter u8, 120 more.
    int8_t* values = nullptr;
    float* scales = nullptr;         // [k_blocks][stride]: x' = value * scale
    float* sums = nullptr;           // [k_blocks][stride]: of x'
    int32_t* corrections = nullptr;  // [k_blocks][stride] or null: minus the third products' sum
    int32_t* moves = nullptr;        // [k_blocks][stride] or null: minus the move, four times as s8
    int8_t* low_values = nullptr;    // [k_blocks][stride][32] or null; never with corrections

    /// Rows [first, first + count) of it.
    QuantizedBlock part(size_t first, size_t count) const {
        QuantizedBlock block = *this;
        block.rows = count;
        block.values += first * PackedLinear::k_block;
        block.scales += first;
        block.sums += first;
        if (corrections) {
            block.corrections += first;
            block.moves += first;
        }
        if (low_values) block.low_values += first * PackedLinear::k_block;
        return block;
    }
};

/// Places i < 12 are paired with 16 + i.
constexpr size_t paired_places = 12;

/// Steps from 0 to the largest value of a group.
inline float steps_of(const QuantizedBlock& block) {
    return block.low_values ? wide_activation_steps : activation_steps;
}

/// What a group of activations is scaled by, from its highest and its lowest or 0: their largest
/// magnitude. In one byte it is such that all values lie within 240 steps, as the paired product
/// needs. (With a margin for what rounding adds.)
inline float scaling_maximum(const QuantizedBlock& block, float highest, float lowest) {
    highest = std::max(highest, 0.0f);
    lowest = std::min(lowest, 0.0f);
    const float largest = std::max(highest, -lowest);
    if (block.low_values) return largest;
    return std::max(largest, (highest - lowest) * (activation_steps / 239.9f));
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
    /// The same to the bit for a paired block and weights of 4 bits; null where there is none.
    void (*multiply_pairs)(const PackedLinear& weights, const uint8_t* tile,
                           const QuantizedBlock& block, const TileOutput& output);
    /// out[i] = gamma[i] * x[i] / sqrt(mean(x^2) + epsilon), i < k.
    void (*rms_norm)(const float* x, const float* gamma, float epsilon, size_t k, float* out);
    /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i], i < n.
    void (*swiglu)(float* gate, const float* up, size_t n);
    /// Rotates `heads` heads of `size`, one after the other (RotaryAngles); cos and sin [size].
    void (*rotate)(float* x, size_t heads, size_t size, const float* cos, const float* sin);
    /// For Activations::bf16; without functions where there is none.
    PanelKernels panels = {};
};

/// The scalar ones.
LinearKernels linear_reference();

/// quantized_linear() and gated_mlp() by these kernels.
void quantized_linear_by(const LinearKernels& kernels, const LinearInput& input,
                         const LinearOutput* outputs, size_t count,
                         const RotaryAngles& angles = {});
void gated_mlp_by(const LinearKernels& kernels, const LinearInput& input, const GatedMlp& mlp);

}  // namespace pagewheel::kernels
