// The formats of a cache, and how the keys and values of a block of tokens lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pagewheel::kernels {

/// All of them. Every list of formats and every switch over them follows from this one.
#define PAGEWHEEL_CACHE_FORMATS(FORMAT) FORMAT(f32) FORMAT(bf16) FORMAT(f16) FORMAT(u8) FORMAT(u4)

#define PAGEWHEEL_ENUMERATOR(name) name,
enum class CacheFormat { PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_ENUMERATOR) };
#undef PAGEWHEEL_ENUMERATOR

#define PAGEWHEEL_ELEMENT(name) CacheFormat::name,
inline constexpr CacheFormat all_cache_formats[] = {PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_ELEMENT)};
#undef PAGEWHEEL_ELEMENT

const char* cache_format_name(CacheFormat format);
/// The format of that name; any other name throws InvalidArgument.
CacheFormat parse_cache_format(const std::string& name);
/// Whether it holds codes, with scales and minima, and not the numbers themselves.
bool is_quantized(CacheFormat format);

/// Larger heads are refused.
constexpr size_t max_head_size = 1024;

/// A block holds `block_size` tokens of one layer for all kv heads, head after head. Everything is
/// made of 32-bit words (little endian), so a block is copied by memcpy and an instruction that
/// multiplies pairs or fours inside a word reads it as it lies.
///
/// Keys of one head, tokens in lanes:
///   word [key_words][block_size]; word (i, t) holds dimensions n*i .. n*i + n - 1 of token t, with
///   n = 1 (f32), 2 (bf16, f16), 4 (u8) or 8 (u4: dimension 8i + b is the low nibble of byte b,
///   8i + 4 + b the high one). Dimensions past the head size are zero.
/// Values of one head, dimensions in lanes:
///   f32         word [block_size][value_size]
///   bf16, f16   word [block_size / 2][value_size], two tokens in a word
///   u8          word [block_size / 4][value_size], four tokens in a word
///   u4          word [block_size / 4][value_size / 2], byte b is token b of four; of the n (32, or
///               what is left) dimensions from g, word g/2 + i holds g + i (low) and g + n/2 + i
///               (high)
/// then, for u8 and u4 keys and values:
///   word [groups][block_size], f16 scale (low half) and f16 minimum (high half) of a group of
///   dimensions of a token, with x = code * scale + minimum. In u8 one group is the whole head; in
///   u4 it is 16 dimensions of a key (the last group may have fewer), and the low or the high
///   nibbles of 16 words of a value (of fewer at the end).
///
/// No byte belongs to two tokens: appending one changes only its own bytes.
struct CacheLayout {
    CacheFormat format = CacheFormat::u8;
    size_t block_size = 32;  // a multiple of 16, at most 256
    size_t kv_heads = 1;
    size_t key_size = 64;    // even, at most max_head_size
    size_t value_size = 64;  // the same

    size_t key_block_bytes() const { return kv_heads * key_head_bytes(); }
    size_t value_block_bytes() const { return kv_heads * value_head_bytes(); }

    size_t key_head_bytes() const { return 4 * block_size * (key_words() + key_groups()); }
    size_t value_head_bytes() const {
        return 4 * (value_rows() * value_row_words() + value_groups() * block_size);
    }

    size_t bits() const;
    /// Dimensions in a word of keys, tokens in a word of values.
    size_t dims_per_key_word() const { return 32 / bits(); }
    size_t tokens_per_value_word() const;
    size_t key_words() const { return (key_size + dims_per_key_word() - 1) / dims_per_key_word(); }
    size_t value_rows() const { return block_size / tokens_per_value_word(); }
    size_t value_row_words() const;
    /// Groups with a scale and a minimum along a head; 0 for the formats that have none.
    size_t key_groups() const;
    size_t value_groups() const;

    /// Throws InvalidArgument for a size this layout cannot hold.
    void check() const;
};

/// The key of token `token` (in the block) and a kv head as floats; out [key_size].
void read_key(const CacheLayout& layout, const uint8_t* key_block, size_t token, size_t kv_head,
              float* out);
/// The value of token `token` and a kv head as floats; out [value_size].
void read_value(const CacheLayout& layout, const uint8_t* value_block, size_t token, size_t kv_head,
                float* out);

/// Copies the bytes of `count` tokens' keys, from slot `from` of one block to slot `to` of another
/// or, towards its beginning, of the same.
void copy_keys(const CacheLayout& layout, const uint8_t* from_block, size_t from, uint8_t* to_block,
               size_t to, size_t count);
/// Copies values as copy_keys() does keys.
void copy_values(const CacheLayout& layout, const uint8_t* from_block, size_t from,
                 uint8_t* to_block, size_t to, size_t count);

}  // namespace pagewheel::kernels
