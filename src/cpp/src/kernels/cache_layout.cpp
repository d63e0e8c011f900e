#include "kernels/cache_layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "kernels/cache_formats.hpp"
#include "kernels/half.hpp"

namespace pagewheel::kernels {
namespace {

/// "f32, bf16 and f16".
std::string names() {
    std::string text;
    size_t left = std::size(all_cache_formats);
    for (const CacheFormat format : all_cache_formats)
        text += cache_format_name(format) + std::string(--left == 0 ? ""
                                                        : left == 1 ? " and "
                                                                    : ", ");
    return text;
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

/// The bits of a word that are an element, which begins `shift` bits up.
template <class T>
uint32_t element_at(uint32_t word, size_t shift) {
    constexpr uint32_t mask = T::bits == 32 ? ~0u : (1u << T::bits % 32) - 1;
    return (word >> shift) & mask;
}

/// T: the traits of the layout's format.
template <class T>
void read_key_as(const CacheLayout& layout, const uint8_t* words, size_t token, float* out) {
    const size_t block = layout.block_size;
    const uint8_t* scales = words + 4 * layout.key_words() * block;
    for (size_t d = 0; d < layout.key_size; ++d) {
        const size_t in_word = d % T::dims_per_word;
        const size_t shift =
            T::nibbles == 2 ? in_word % 4 * 8 + in_word / 4 * 4 : in_word * T::bits;
        const uint32_t word = word_at(words, d / T::dims_per_word * block + token);
        out[d] = T::decode(element_at<T>(word, shift));
        if (T::quantized)
            out[d] = dequantized(out[d], word_at(scales, d / T::group * block + token));
    }
}

template <class T>
void read_value_as(const CacheLayout& layout, const uint8_t* words, size_t token, float* out) {
    const size_t row_words = layout.value_row_words();
    const uint8_t* scales = words + 4 * layout.value_rows() * row_words;
    const size_t in_word = token % T::tokens_per_word * (32 / T::tokens_per_word);
    for (size_t d = 0; d < layout.value_size; ++d) {
        size_t column = d, shift = in_word, group = d / T::group;
        if (T::nibbles == 2) {
            const size_t pair_begin = d / (2 * T::group) * (2 * T::group);
            const size_t half = std::min(2 * T::group, layout.value_size - pair_begin) / 2;
            const bool high = d - pair_begin >= half;
            column = pair_begin / 2 + (d - pair_begin) - (high ? half : 0);
            shift += high ? 4 : 0;
            group = pair_begin / T::group + (high ? 1 : 0);
        }
        const uint32_t word = word_at(words, token / T::tokens_per_word * row_words + column);
        out[d] = T::decode(element_at<T>(word, shift));
        if (T::quantized)
            out[d] = dequantized(out[d], word_at(scales, group * layout.block_size + token));
    }
}

}  // namespace

const char* cache_format_name(CacheFormat format) {
    switch (format) {
#define PAGEWHEEL_CASE(name) \
    case CacheFormat::name:  \
        return #name;
        PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_CASE)
#undef PAGEWHEEL_CASE
    }
    __builtin_unreachable();
}

CacheFormat parse_cache_format(const std::string& name) {
    for (const CacheFormat format : all_cache_formats)
        if (name == cache_format_name(format)) return format;
    refuse_argument("cache format ", name, ": allowed are ", names());
}

bool is_quantized(CacheFormat format) {
    return for_format<void>(format, [](auto f) { return FormatTraits<f>::quantized; });
}

size_t CacheLayout::bits() const {
    return for_format<void>(format, [](auto f) { return FormatTraits<f>::bits; });
}

size_t CacheLayout::tokens_per_value_word() const {
    return for_format<void>(format, [](auto f) { return FormatTraits<f>::tokens_per_word; });
}

size_t CacheLayout::value_row_words() const {
    return for_format<void>(format, [&](auto f) { return value_size / FormatTraits<f>::nibbles; });
}

size_t CacheLayout::key_groups() const {
    return for_format<void>(format, [&](auto f) {
        using T = FormatTraits<f>;
        return T::quantized ? (key_size + T::group - 1) / T::group : size_t(0);
    });
}

size_t CacheLayout::value_groups() const {
    return for_format<void>(format, [&](auto f) {
        using T = FormatTraits<f>;
        constexpr size_t dims = T::nibbles * T::group;
        return T::quantized ? (value_size + dims - 1) / dims * T::nibbles : size_t(0);
    });
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
    const uint8_t* head = key_block + kv_head * layout.key_head_bytes();
    for_format<void>(layout.format, [&](auto format) {
        read_key_as<FormatTraits<format>>(layout, head, token, out);
    });
}

void read_value(const CacheLayout& layout, const uint8_t* value_block, size_t token, size_t kv_head,
                float* out) {
    const uint8_t* head = value_block + kv_head * layout.value_head_bytes();
    for_format<void>(layout.format, [&](auto format) {
        read_value_as<FormatTraits<format>>(layout, head, token, out);
    });
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
