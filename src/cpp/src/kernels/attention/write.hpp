// Writing one token to the cache.
#pragma once

#include <cstring>

#include "kernels/attention/tile.hpp"

namespace pagewheel::kernels {

/// `V` gives range(x, n, low, high), quantize(x, n, low, inverse, levels, codes), half(x) and
/// float_of(half), to_bf16 and to_f16 (x, n, out).
template <class V>
class TokenWriter {
public:
    explicit TokenWriter(const CacheLayout& layout) : layout_(layout) {}

    void write(const AttentionBatch& batch, size_t sequence, size_t token) const {
        const size_t position = static_cast<size_t>(batch.tables.written_past_lens[sequence]) +
                                token - static_cast<size_t>(batch.tables.written_begins[sequence]);
        const size_t entry = static_cast<size_t>(batch.tables.block_indices_begins[sequence]) +
                             position / layout_.block_size;
        const auto block = static_cast<size_t>(batch.tables.block_indices[entry]);
        const size_t slot = position % layout_.block_size;
        uint8_t* keys = batch.key_blocks + block * layout_.key_block_bytes();
        uint8_t* values = batch.value_blocks + block * layout_.value_block_bytes();
        for (size_t h = 0; h < layout_.kv_heads; ++h) {
            const size_t row = token * layout_.kv_heads + h;
            write_key(batch.key + row * layout_.key_size, keys, slot);
            write_value(batch.value + row * layout_.value_size, values, slot);
            keys += layout_.key_head_bytes();
            values += layout_.value_head_bytes();
        }
    }

private:
    static constexpr size_t at_once = 32;  // dimensions encoded at once: whole words

    /// Codes [n] of x [n] in one group; its scale and minimum to `scale_word`. Codes count from the
    /// minimum and in the scale that are stored, so that only the codes' rounding is an error.
    void quantize(const float* x, size_t n, float levels, uint8_t* codes,
                  uint8_t* scale_word) const {
        float low, high;
        V::range(x, n, low, high);
        uint16_t halves[2] = {V::half(within_half((high - low) / levels)),
                              V::half(within_half(low))};
        if (halves[0] == 0) halves[0] = 0x3c00;  // equal numbers: a scale of 1, all codes 0
        const float inverse = 1 / V::float_of(halves[0]);
        V::quantize(x, n, V::float_of(halves[1]), inverse, levels, codes);
        std::memcpy(scale_word, halves, 4);
    }

    /// x, or the half that is nearest to it where halves end.
    static float within_half(float x) {
        constexpr float largest = 65504;
        return x > largest ? largest : x < -largest ? -largest : x;
    }

    /// x [key_size] to lane `slot` of keys (one kv head).
    void write_key(const float* x, uint8_t* keys, size_t slot) const {
        const size_t size = layout_.key_size, block = layout_.block_size;
        uint8_t* scales = keys + 4 * layout_.key_words() * block;
        const auto put = [&](size_t word, const void* p) {
            std::memcpy(keys + 4 * (word * block + slot), p, 4);
        };
        if (layout_.format == CacheFormat::f32) {
            for (size_t d = 0; d < size; ++d) put(d, x + d);
            return;
        }
        if (layout_.format == CacheFormat::u8) {
            uint8_t codes[max_head_size];
            quantize(x, size, 255, codes, scales + 4 * slot);
            for (size_t d = size; d % 4; ++d) codes[d] = 0;
            for (size_t d = 0; d < size; d += 4) put(d / 4, codes + d);
            return;
        }
        for (size_t begin = 0; begin < size; begin += at_once) {
            const size_t n = size - begin < at_once ? size - begin : at_once;
            if (layout_.format == CacheFormat::u4) {
                uint8_t codes[at_once] = {};
                for (size_t d = 0; d < n; d += u4_group)
                    quantize(x + begin + d, n - d < u4_group ? n - d : u4_group, 15, codes + d,
                             scales + 4 * ((begin + d) / u4_group * block + slot));
                for (size_t d = 0; d < n; d += 8) {
                    uint8_t word[4];
                    for (size_t b = 0; b < 4; ++b)
                        word[b] = static_cast<uint8_t>(codes[d + b] | codes[d + 4 + b] << 4);
                    put((begin + d) / 8, word);
                }
            } else {
                uint16_t halves[at_once];
                to_16_bits(x + begin, n, halves);
                for (size_t d = 0; d < n; d += 2) put((begin + d) / 2, halves + d);
            }
        }
    }

    /// x [value_size] to row `slot` of values (one kv head).
    void write_value(const float* x, uint8_t* values, size_t slot) const {
        const size_t size = layout_.value_size, block = layout_.block_size;
        const size_t per_word = layout_.tokens_per_value_word(),
                     row_words = layout_.value_row_words();
        uint8_t* row = values + 4 * (slot / per_word * row_words);
        uint8_t* scales = values + 4 * layout_.value_rows() * row_words;
        const size_t in_word = slot % per_word;
        if (layout_.format == CacheFormat::f32) {
            std::memcpy(row, x, 4 * size);
            return;
        }
        if (layout_.format == CacheFormat::u8) {
            uint8_t codes[max_head_size];
            quantize(x, size, 255, codes, scales + 4 * slot);
            for (size_t d = 0; d < size; ++d) row[4 * d + in_word] = codes[d];
            return;
        }
        for (size_t begin = 0; begin < size; begin += at_once) {
            const size_t n = size - begin < at_once ? size - begin : at_once;
            if (layout_.format == CacheFormat::u4) {
                uint8_t codes[at_once];
                for (size_t half = 0; half < 2; ++half)
                    quantize(x + begin + half * n / 2, n / 2, 15, codes + half * n / 2,
                             scales + 4 * ((begin / u4_group + half) * block + slot));
                for (size_t i = 0; i < n / 2; ++i)
                    row[4 * (begin / 2 + i) + in_word] =
                        static_cast<uint8_t>(codes[i] | codes[n / 2 + i] << 4);
            } else {
                uint16_t halves[at_once];
                to_16_bits(x + begin, n, halves);
                for (size_t i = 0; i < n; ++i)
                    std::memcpy(row + 4 * (begin + i) + 2 * in_word, halves + i, 2);
            }
        }
    }

    void to_16_bits(const float* x, size_t n, uint16_t* out) const {
        if (layout_.format == CacheFormat::bf16)
            V::to_bf16(x, n, out);
        else
            V::to_f16(x, n, out);
    }

    const CacheLayout& layout_;
};

template <class V>
void write_token(const CacheLayout& layout, const AttentionBatch& batch, size_t sequence,
                 size_t token) {
    TokenWriter<V>(layout).write(batch, sequence, token);
}

}  // namespace pagewheel::kernels
