#include "kernels/packed_linear.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/check.hpp"
#include "kernels/half.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t huge_page = size_t(2) << 20, region_bytes = 8 * huge_page, line = 64;

size_t rounded(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

std::shared_ptr<uint8_t> make_region(size_t bytes) {
    void* memory = std::aligned_alloc(huge_page, bytes);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; small pages do as well
#endif
    return {static_cast<uint8_t*>(memory), [](uint8_t* p) { std::free(p); }};
}

// Of one, in the order of PackedLinear::Scale and PackedLinear::Offset.
constexpr size_t bytes_of_scale[] = {1, 2, 4}, bytes_of_offset[] = {0, 1, 2, 4};

/// How a type is packed.
struct Packing {
    PackedType type;
    int shift = 0;  // what is added to make a value unsigned
};

Packing packing_of(WeightType type) {
    switch (type) {
        case WeightType::u4:
            return {PackedType::u4};
        case WeightType::i4:
            return {PackedType::u4, 8};
        case WeightType::u8:
            return {PackedType::u8};
        case WeightType::i8:
            return {PackedType::u8, 128};
        case WeightType::f4e2m1:
            return {PackedType::f4e2m1, f4e2m1_zero_point};
        case WeightType::f16:
        case WeightType::bf16:
            return {PackedType::bf16};
    }
    __builtin_unreachable();
}

/// Row `row` of the values, unsigned or codes, one a byte.
void read_row(const LinearWeights& weights, size_t row, uint8_t* out) {
    const auto* bytes = static_cast<const uint8_t*>(weights.values);
    const size_t k = weights.k, first = row * weights.row_step * k;
    const auto [type, shift] = packing_of(weights.type);
    const auto flip = uint8_t(type == PackedType::f4e2m1 ? 0 : shift);
    if (type == PackedType::u8) {
        for (size_t i = 0; i < k; ++i) out[i] = bytes[first + i] ^ flip;
        return;
    }
    size_t i = 0;
    if (first % 2 == 1 && k > 0) out[i++] = uint8_t(bytes[first / 2] >> 4) ^ flip;
    for (; i + 2 <= k; i += 2) {
        const uint8_t pair = bytes[(first + i) / 2];
        out[i] = uint8_t(pair & 15) ^ flip;
        out[i + 1] = uint8_t(pair >> 4) ^ flip;
    }
    if (i < k) out[i] = uint8_t(bytes[(first + i) / 2] & 15) ^ flip;
}

/// The zero point of the unsigned values of a group.
float zero_point(const LinearWeights& weights, size_t group) {
    const float own = weights.zero_points ? weights.zero_points[group] : 0.0f;
    return own + float(packing_of(weights.type).shift);
}

/// The scale of the unsigned values, those of f4e2m1 being doubled.
float scale_of(const LinearWeights& weights, size_t group) {
    return weights.type == WeightType::f4e2m1 ? 0.5f * weights.scales[group]
                                              : weights.scales[group];
}

float minimum(const LinearWeights& weights, size_t group) {
    return float(-double(zero_point(weights, group)) * double(scale_of(weights, group)));
}

/// The exponent of 0 or of a power of two that is no denormal; nothing of any other number.
std::optional<uint8_t> exponent_of(float value) {
    const uint32_t bits = bits_of_float(value);
    if ((bits & 0x807fffff) != 0) return {};
    return uint8_t(bits >> 23);
}

float float_of_exponent(uint8_t exponent) {
    return float_of_bits(uint32_t(exponent) << 23);
}

bool is_half(float value) {
    return float_of_half(half_of_float(value)) == value;
}

bool is_nearly_half(float value) {
    return std::abs(float_of_half(half_of_float(value)) - value) <= std::abs(value) * 0x1p-22f;
}

bool is_byte(float value) {
    return value >= 0 && value <= 255 && value == std::floor(value);
}

void append(uint8_t*& out, const float (&values)[PackedLinear::tile_rows],
            PackedLinear::Scale form) {
    for (const float value : values) {
        if (form == PackedLinear::Scale::e8m0) {
            *out++ = *exponent_of(value);
        } else if (form == PackedLinear::Scale::f16) {
            const uint16_t half = half_of_float(value);
            std::memcpy(out, &half, sizeof half);
            out += sizeof half;
        } else {
            std::memcpy(out, &value, sizeof value);
            out += sizeof value;
        }
    }
}

/// Value i of an array that need not be aligned.
template <class T>
T read(const uint8_t* array, size_t i) {
    T value;
    std::memcpy(&value, array + i * sizeof value, sizeof value);
    return value;
}

}  // namespace

std::shared_ptr<uint8_t> WeightMemory::allocate(size_t bytes) {
    if (bytes > m_size - m_used) {
        // Pages that are never touched are never there, so a region that is not filled costs
        // little.
        m_size = std::max(region_bytes, rounded(bytes, huge_page));
        m_region = make_region(m_size);
        m_used = 0;
    }
    const std::shared_ptr<uint8_t> piece(m_region, m_region.get() + m_used);
    m_used = std::min(m_size, m_used + rounded(bytes, line));
    return piece;
}

void refuse_weights_of_bf16() {
    refuse_argument("weights in bf16 with quantised activations: must be in bf16, too");
}

PackedLinear::PackedLinear(const LinearWeights& weights, WeightMemory& memory)
    : m_n(weights.n), m_k(weights.k), m_type(packing_of(weights.type).type) {
    check_argument(m_n > 0 && m_k > 0, "a linear layer of ", m_n, " outputs and ", m_k,
                   " inputs: both must be positive");
    check_argument(weights.group > 0 && (weights.group % k_block == 0 || weights.group >= m_k),
                   "weights in groups of ", weights.group, ": must be a multiple of ", k_block);
    check_argument((m_type != PackedType::f4e2m1 && !is_bf16()) || !weights.zero_points,
                   "weights of floats with zero points");
    check_argument(is_bf16() == !weights.scales,
                   "weights of integers need scales, f16 and bf16 have none");
    m_k_blocks_per_group = std::min((weights.group + k_block - 1) / k_block, k_blocks());
    choose_format(weights);
    const size_t groups = (k_blocks() + m_k_blocks_per_group - 1) / m_k_blocks_per_group;
    m_tile_bytes = groups * (m_scale_bytes + m_offset_bytes) + k_blocks() * k_block_bytes();
    const std::shared_ptr<uint8_t> data = memory.allocate(bytes());
    // In the work ranges of the calls to come: a page lies on the node of the thread that writes it
    // first.
    run_phases(StreamPhase{tiles(), [&](size_t i) {
                               uint8_t* out = data.get() + i * tile_bytes();
                               is_bf16()
                                   ? pack_numbers(weights, i, reinterpret_cast<uint16_t*>(out))
                                   : pack_tile(weights, i, out);
                           }});
    m_data = data;
}

void PackedLinear::choose_format(const LinearWeights& weights) {
    m_fits_f16 = false;
    if (is_bf16()) return;
    const size_t count = weights.n * weights.groups();
    bool common = true, bytes = true, halves = true, nibbles = true, small = true;
    bool f16_scales = true, exponents = m_type == PackedType::f4e2m1;
    const float first = zero_point(weights, 0);
    const float highest = m_type == PackedType::u4 ? 15.0f : 255.0f;
    for (size_t i = 0; i < count; ++i) {
        f16_scales = f16_scales && is_half(scale_of(weights, i));
        exponents = exponents && exponent_of(scale_of(weights, i));
        const float zero = zero_point(weights, i);
        common = common && zero == first;
        bytes = bytes && is_byte(zero);
        halves = halves && is_nearly_half(minimum(weights, i));
        nibbles = nibbles && is_byte(zero) && zero <= 15;
        small = small && std::abs(zero * weights.scales[i]) < 255 &&
                std::abs((highest - zero) * weights.scales[i]) < 255;
    }
    m_offset = common   ? Offset::common
               : bytes  ? Offset::u8_zero_point
               : halves ? Offset::f16_minimum
                        : Offset::f32_minimum;
    m_common_zero_point = common ? first : 0.0f;
    m_scale = exponents ? Scale::e8m0 : f16_scales ? Scale::f16 : Scale::f32;
    m_scale_bytes = tile_rows * bytes_of_scale[size_t(m_scale)];
    m_offset_bytes = tile_rows * bytes_of_offset[size_t(m_offset)];
    m_fits_f16 = m_type == PackedType::u4 && f16_scales && small &&
                 (nibbles || m_offset == Offset::f16_minimum);
}

void PackedLinear::pack_tile(const LinearWeights& weights, size_t tile, uint8_t* out) const {
    const size_t first = tile * tile_rows, rows = std::min(tile_rows, m_n - first);
    const size_t width = k_blocks() * k_block, groups = weights.groups();
    static thread_local std::vector<uint8_t> values;
    values.assign(tile_rows * width, 0);
    for (size_t r = 0; r < rows; ++r) read_row(weights, first + r, values.data() + r * width);

    for (size_t c = 0; c < k_blocks(); ++c) {
        if (c % m_k_blocks_per_group == 0) {
            float scales[tile_rows] = {}, offsets[tile_rows] = {};
            for (size_t r = 0; r < rows; ++r) {
                const size_t group = (first + r) * groups + c / m_k_blocks_per_group;
                scales[r] = scale_of(weights, group);
                offsets[r] = m_offset == Offset::u8_zero_point ? zero_point(weights, group)
                                                               : minimum(weights, group);
            }
            append(out, scales, m_scale);
            if (m_offset == Offset::u8_zero_point)
                for (const float zero : offsets) *out++ = uint8_t(zero);
            else if (m_offset != Offset::common)
                append(out, offsets, m_offset == Offset::f16_minimum ? Scale::f16 : Scale::f32);
        }
        const uint8_t* in = values.data() + c * k_block;
        const bool paired = bits_of(m_type) == 4;
        for (size_t j = 0; j < (paired ? 4u : 8u); ++j)
            for (size_t r = 0; r < tile_rows; ++r)
                for (size_t i = 0; i < 4; ++i) {
                    const uint8_t* four = in + r * width + 4 * j + i;
                    *out++ = paired ? uint8_t(four[0] | (four[16] << 4)) : four[0];
                }
    }
}

void PackedLinear::pack_numbers(const LinearWeights& weights, size_t tile, uint16_t* out) const {
    const auto* all = static_cast<const uint8_t*>(weights.values);
    const size_t first = tile * tile_rows, rows = std::min(tile_rows, m_n - first);
    std::fill_n(out, tile_bytes() / sizeof *out, uint16_t(0));
    for (size_t r = 0; r < rows; ++r) {
        const uint8_t* in = all + (first + r) * weights.row_step * m_k * sizeof(uint16_t);
        for (size_t k = 0; k < m_k; ++k) {
            const auto bits = read<uint16_t>(in, k);
            out[(k / 2 * tile_rows + r) * 2 + k % 2] =
                weights.type == WeightType::bf16 ? bits : bf16_of_float(float_of_half(bits));
        }
    }
}

bool PackedLinear::has_integer_zero_points() const {
    if (is_bf16()) return false;
    return m_offset == Offset::u8_zero_point ||
           (m_offset == Offset::common && m_common_zero_point == std::floor(m_common_zero_point));
}

int PackedLinear::value_at(const uint8_t* k_block, size_t row, size_t k) const {
    const size_t at = m_type == PackedType::u8 ? k : k % 16;
    const uint8_t byte = k_block[(at / 4 * tile_rows + row) * 4 + at % 4];
    if (m_type == PackedType::u8) return byte;
    const int nibble = k < 16 ? byte & 15 : byte >> 4;
    return m_type == PackedType::u4 ? nibble : f4e2m1_values[nibble];
}

void PackedLinear::unpack_row(size_t i, float* out) const {
    const size_t r = i % tile_rows;
    const uint8_t* in = tile(i / tile_rows);
    float scale = 0, zero = m_common_zero_point;
    for (size_t c = 0; c < k_blocks(); ++c) {
        if (c % m_k_blocks_per_group == 0) {
            scale = m_scale == Scale::e8m0  ? float_of_exponent(in[r])
                    : m_scale == Scale::f16 ? float_of_half(read<uint16_t>(in, r))
                                            : read<float>(in, r);
            in += scale_bytes();
            if (m_offset == Offset::u8_zero_point) zero = float(in[r]);
            in += offset_bytes();
        }
        const size_t size = std::min(k_block, m_k - c * k_block);
        for (size_t k = 0; k < size; ++k) {
            out[c * k_block + k] = (float(value_at(in, r, k)) - zero) * scale;
        }
        in += k_block_bytes();
    }
}

}  // namespace pagewheel::kernels
