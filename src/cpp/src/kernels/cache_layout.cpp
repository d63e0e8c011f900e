#include "kernels/cache_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "check.hpp"
#include "kernels/half.hpp"

namespace pagewheel::kernels {
namespace {

constexpr CacheFormat all_formats[] = {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16,
                                       CacheFormat::u8, CacheFormat::u4};

float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

float float_of_code(CacheFormat format, uint32_t code) {
    switch (format) {
        case CacheFormat::f32:
            return float_of_bits(code);
        case CacheFormat::bf16:
            return float_of_bits(code << 16);
        case CacheFormat::f16:
            return float_of_half(static_cast<uint16_t>(code));
        default:
            return static_cast<float>(code);
    }
}

/// word (uint32_t [..]) number i of the data at p.
uint32_t word_at(const uint8_t* p, size_t i) {
    uint32_t word;
    std::memcpy(&word, p + 4 * i, 4);
    return word;
}

/// Moves words [from, from + count) of each of `rows` rows of `width` words to [to, to + count).
void copy_lanes(const uint8_t* from_rows, size_t from, uint8_t* to_rows, size_t to, size_t count,
                size_t rows, size_t width) {
    for (size_t row = 0; row < rows; ++row)
        std::memmove(to_rows + 4 * (row * width + to), from_rows + 4 * (row * width + from),
                     4 * count);
}

/// The word of `row_words` of a row in which a token is one of `per_word`.
size_t row_of(size_t token, size_t per_word, size_t row_words) {
    return 4 * (token / per_word) * row_words;
}

/// Moves tokens [from, from + count) of rows whose words hold `per_word` tokens each to
/// [to, to + count).
void copy_interleaved(const uint8_t* from_rows, size_t from, uint8_t* to_rows, size_t to,
                      size_t count, size_t per_word, size_t row_words) {
    const size_t bytes = 4 / per_word;
    const auto copy_one = [&](size_t i) {
        const uint8_t* source =
            from_rows + row_of(from + i, per_word, row_words) + (from + i) % per_word * bytes;
        uint8_t* target =
            to_rows + row_of(to + i, per_word, row_words) + (to + i) % per_word * bytes;
        for (size_t w = 0; w < row_words; ++w) std::memcpy(target + 4 * w, source + 4 * w, bytes);
    };
    size_t i = 0;
    for (; i < count && (to + i) % per_word != 0; ++i) copy_one(i);
    // Whole words of the target, of two rows of the source or of one.
    for (; i + per_word <= count; i += per_word) {
        const uint8_t* source = from_rows + row_of(from + i, per_word, row_words);
        uint8_t* target = to_rows + row_of(to + i, per_word, row_words);
        const size_t shift = (from + i) % per_word * 8 * bytes;
        if (shift == 0) {
            std::memmove(target, source, 4 * row_words);
            continue;
        }
#pragma GCC ivdep  // the target is the first of the source's rows, or neither
        for (size_t w = 0; w < row_words; ++w) {
            const uint32_t word = word_at(source, w) >> shift | word_at(source, w + row_words)
                                                                    << (32 - shift);
            std::memcpy(target + 4 * w, &word, 4);
        }
    }
    for (; i < count; ++i) copy_one(i);
}

/// A code's value by its group's word of scale and minimum.
float dequantized(float code, uint32_t scale_and_minimum) {
    return code * float_of_half(static_cast<uint16_t>(scale_and_minimum)) +
           float_of_half(static_cast<uint16_t>(scale_and_minimum >> 16));
}

}  // namespace

const char* cache_format_name(CacheFormat format) {
    switch (format) {
        case CacheFormat::f32:
            return "f32";
        case CacheFormat::bf16:
            return "bf16";
        case CacheFormat::f16:
            return "f16";
        case CacheFormat::u8:
            return "u8";
        default:
            return "u4";
    }
}

CacheFormat parse_cache_format(const std::string& name) {
    for (CacheFormat format : all_formats)
        if (name == cache_format_name(format)) return format;
    throw std::invalid_argument(
        concat("cache format ", name, ": allowed are f32, bf16, f16, u8 and u4"));
}

size_t CacheLayout::bits() const {
    switch (format) {
        case CacheFormat::f32:
            return 32;
        case CacheFormat::bf16:
        case CacheFormat::f16:
            return 16;
        case CacheFormat::u8:
            return 8;
        default:
            return 4;
    }
}

size_t CacheLayout::key_groups() const {
    if (format == CacheFormat::u8) return 1;
    return format == CacheFormat::u4 ? (key_size + u4_group - 1) / u4_group : 0;
}

size_t CacheLayout::value_groups() const {
    if (format == CacheFormat::u8) return 1;
    return format == CacheFormat::u4 ? (value_size + 2 * u4_group - 1) / (2 * u4_group) * 2 : 0;
}

void CacheLayout::check() const {
    check_argument(block_size > 0 && block_size % 16 == 0 && block_size <= 256, "block size ",
                   block_size, ": must be a multiple of 16 up to 256");
    check_argument(kv_heads > 0, "kv heads: got 0, expected at least 1");
    for (size_t size : {key_size, value_size})
        check_argument(size > 0 && size % 2 == 0 && size <= max_head_size, "head size ", size,
                       ": must be a multiple of 2 up to ", max_head_size);
}

void read_key(const CacheLayout& layout, const uint8_t* key_block, size_t token, size_t kv_head,
              float* out) {
    const uint8_t* words = key_block + kv_head * layout.key_head_bytes();
    const uint8_t* scales = words + 4 * layout.key_words() * layout.block_size;
    const size_t bits = layout.bits(), per_word = 32 / bits;
    const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (size_t d = 0; d < layout.key_size; ++d) {
        const size_t in_word = d % per_word;
        const size_t shift = bits == 4 ? in_word % 4 * 8 + in_word / 4 * 4 : in_word * bits;
        const uint32_t word = word_at(words, d / per_word * layout.block_size + token);
        out[d] = float_of_code(layout.format, (word >> shift) & mask);
        const size_t group = bits == 4 ? d / u4_group : 0;
        if (layout.key_groups() > 0)
            out[d] = dequantized(out[d], word_at(scales, group * layout.block_size + token));
    }
}

void read_value(const CacheLayout& layout, const uint8_t* value_block, size_t token, size_t kv_head,
                float* out) {
    const uint8_t* words = value_block + kv_head * layout.value_head_bytes();
    const uint8_t* scales = words + 4 * layout.value_rows() * layout.value_row_words();
    const size_t bits = layout.bits(), per_word = layout.tokens_per_value_word();
    const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
    for (size_t d = 0; d < layout.value_size; ++d) {
        size_t column = d, shift = token % per_word * std::max<size_t>(bits, 32 / per_word);
        size_t group = 0;
        if (bits == 4) {
            const size_t pair_begin = d / (2 * u4_group) * (2 * u4_group);
            const size_t half = std::min(2 * u4_group, layout.value_size - pair_begin) / 2;
            const bool high = d - pair_begin >= half;
            column = pair_begin / 2 + (d - pair_begin) - (high ? half : 0);
            shift += high ? 4 : 0;
            group = pair_begin / u4_group + (high ? 1 : 0);
        }
        const uint32_t word = word_at(words, token / per_word * layout.value_row_words() + column);
        out[d] = float_of_code(layout.format, (word >> shift) & mask);
        if (layout.value_groups() > 0)
            out[d] = dequantized(out[d], word_at(scales, group * layout.block_size + token));
    }
}

void copy_keys(const CacheLayout& layout, const uint8_t* from_block, size_t from, uint8_t* to_block,
               size_t to, size_t count) {
    // A head's keys and scales are all rows with a word per token.
    const size_t rows = layout.key_head_bytes() / 4 / layout.block_size * layout.kv_heads;
    copy_lanes(from_block, from, to_block, to, count, rows, layout.block_size);
}

void copy_values(const CacheLayout& layout, const uint8_t* from_block, size_t from,
                 uint8_t* to_block, size_t to, size_t count) {
    const size_t words = layout.value_row_words(), data = 4 * layout.value_rows() * words;
    for (size_t head = 0; head < layout.kv_heads; ++head) {
        const uint8_t* from_head = from_block + head * layout.value_head_bytes();
        uint8_t* to_head = to_block + head * layout.value_head_bytes();
        copy_interleaved(from_head, from, to_head, to, count, layout.tokens_per_value_word(),
                         words);
        copy_lanes(from_head + data, from, to_head + data, to, count, layout.value_groups(),
                   layout.block_size);
    }
}

}  // namespace pagewheel::kernels
