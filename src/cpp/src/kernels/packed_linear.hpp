// Weights of a linear layer in 4, 8 or 16 bits, packed for the kernels that stream them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pagewheel::kernels {

/// Hands out pieces of large regions on huge pages, where the system has them: with small ones a
/// step over 100 MB of weights takes 25,000 address translations. A region lives as long as one of
/// its pieces. Not for several threads at once.
class WeightMemory {
public:
    /// `bytes` bytes, 64-byte aligned. Throws std::bad_alloc.
    std::shared_ptr<uint8_t> allocate(size_t bytes);

private:
    std::shared_ptr<uint8_t> m_region;
    size_t m_used = 0, m_size = 0;
};

/// How the source holds a weight. Two of 4 bits share a byte, the first in the low nibble.
enum class WeightType { u4, i4, u8, i8, f4e2m1, f16, bf16 };

/// How a packed weight is held: as an unsigned integer, as the code of one (f4e2m1_values), or as
/// the nearest bf16.
enum class PackedType { u4, u8, f4e2m1, bf16 };

/// What the codes of f4e2m1 (MXFP4) stand for, doubled and raised to integers from 0 on.
constexpr int f4e2m1_zero_point = 12;
constexpr uint8_t f4e2m1_values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

constexpr int bits_of(PackedType type) {
    return type == PackedType::bf16 ? 16 : type == PackedType::u8 ? 8 : 4;
}

/// What calls choose their activations by: all weights are u4, all bf16, or neither.
enum class WeightForm { u4, bf16, other };

/// The form of two matrices of one call.
constexpr WeightForm common_form(WeightForm one, WeightForm other) {
    return one == other ? one : WeightForm::other;
}

/// A matrix as models hold it, w[n][k] = (values[n][k] - zero_point) * scale with one scale and
/// zero point per row and group along k. Those of f16 and bf16 are the weights. A view.
struct LinearWeights {
    size_t n = 0, k = 0;  // outputs, inputs
    size_t group = 0;     // a multiple of 32; at least k for one group per row
    WeightType type = WeightType::u4;
    const void* values = nullptr;        // [n, k], without gaps but for those of row_step
    const float* scales = nullptr;       // [n, groups()]; finite; null for f16 and bf16
    const float* zero_points = nullptr;  // [n, groups()], finite; null: zero, as floats need

    size_t row_step = 1;  // of `values`, each so manieth row counts

    size_t groups() const { return (k + group - 1) / group; }
};

/// The same weights in tiles of 16 rows, so that one pass over memory serves 16 outputs. Values
/// are unsigned (i4 and i8 are shifted by 8 and 128, f4e2m1 is held as codes of f4e2m1_values) and
/// w = value * scale + minimum.
///
/// A tile is its groups one after the other; a group is
///     scales    16 f16, f32 or e8m0, row by row: see Scale
///     offsets   nothing, 16 u8 zero points, or 16 f16 or f32 minima: see Offset
///     k-blocks    of 32 along k, 16 rows each; the last group's end with zeros up to 32:
///         4 bits  [4][16][4] bytes: byte (j, row, i) holds k = 4j + i low and k = 16 + 4j + i high
///         8 bits  [8][16][4] bytes: byte (j, row, i) holds k = 4j + i
///         bf16    [16][16][2] numbers: number (j, row, i) holds k = 2j + i
/// Rows after the last have scale and minimum 0. Tiles of bf16 have no scales and offsets, and
/// zeros in rows after the last.
class PackedLinear {
public:
    static constexpr size_t tile_rows = 16;
    static constexpr size_t k_block = 32;

    /// What the minimum is computed from. `common`: minimum = -zero point * scale with one zero
    /// point for the matrix. The smallest that is exact (to 2^-22 for the minima) is taken.
    enum class Offset { common, u8_zero_point, f16_minimum, f32_minimum };

    /// What a scale is held in, the smallest that is exact. `e8m0`, for values of f4e2m1 only, is
    /// the exponent of a power of two as f32 has it; its 0 is 0.
    enum class Scale { e8m0, f16, f32 };

    PackedLinear() = default;
    /// Packs into memory of its own, or into some that matrices share. Throws InvalidArgument
    /// for a group that is no multiple of 32, or no size.
    explicit PackedLinear(const LinearWeights& weights, WeightMemory&& memory = {})
        : PackedLinear(weights, memory) {}
    PackedLinear(const LinearWeights& weights, WeightMemory& memory);

    size_t n() const { return m_n; }
    size_t k() const { return m_k; }
    PackedType type() const { return m_type; }
    bool is_bf16() const { return m_type == PackedType::bf16; }
    WeightForm form() const {
        return m_type == PackedType::u4 ? WeightForm::u4
               : is_bf16()              ? WeightForm::bf16
                                        : WeightForm::other;
    }
    Scale scale() const { return m_scale; }
    Offset offset() const { return m_offset; }
    float common_zero_point() const { return m_common_zero_point; }

    size_t k_blocks() const { return (m_k + k_block - 1) / k_block; }
    size_t k_blocks_per_group() const { return m_k_blocks_per_group; }
    size_t tiles() const { return (m_n + tile_rows - 1) / tile_rows; }
    size_t k_block_bytes() const { return k_block * tile_rows * size_t(bits_of(m_type)) / 8; }
    size_t scale_bytes() const { return m_scale_bytes; }
    size_t offset_bytes() const { return m_offset_bytes; }
    size_t tile_bytes() const { return m_tile_bytes; }
    size_t bytes() const { return tiles() * tile_bytes(); }
    const uint8_t* tile(size_t i) const { return m_data.get() + i * tile_bytes(); }

    /// The numbers of a tile of bf16, from a k-block on.
    const uint16_t* numbers(size_t tile, size_t k_block) const {
        return reinterpret_cast<const uint16_t*>(this->tile(tile)) +
               k_block * PackedLinear::k_block * tile_rows;
    }

    /// The unsigned value of a row of a tile and of place k of a k-block, which begins there.
    int value_at(const uint8_t* k_block, size_t row, size_t k) const;

    /// Whether zero points are integers, so that unpack_row() gives (value - zero point) * scale,
    /// rounded once.
    bool has_integer_zero_points() const;
    /// Whether the kernels that unpack in f16 may: u4 with scales in f16, zero points of 0 to 15 or
    /// minima in f16, and no weight beyond +-255.
    bool fits_f16() const { return m_fits_f16; }
    /// Row i in f32, [k]; only with integer zero points, which floats have not.
    void unpack_row(size_t i, float* out) const;

private:
    void choose_format(const LinearWeights& weights);
    void pack_tile(const LinearWeights& weights, size_t tile, uint8_t* out) const;
    void pack_numbers(const LinearWeights& weights, size_t tile, uint16_t* out) const;

    size_t m_n = 0, m_k = 0;
    size_t m_k_blocks_per_group = 1;
    PackedType m_type = PackedType::u4;
    Scale m_scale = Scale::f16;
    bool m_fits_f16 = true;
    Offset m_offset = Offset::common;
    float m_common_zero_point = 0;
    size_t m_scale_bytes = 0, m_offset_bytes = 0, m_tile_bytes = 0;
    std::shared_ptr<const uint8_t> m_data;  // 64-byte aligned
};

/// Throws InvalidArgument: what kernels of quantised activations do with weights in bf16.
[[noreturn]] void refuse_weights_of_bf16();

}  // namespace pagewheel::kernels
