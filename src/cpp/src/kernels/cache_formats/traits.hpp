// What the descriptions of cache formats share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cache_format.hpp"

namespace pagewheel::kernels {

template <CacheFormat Format>
struct FormatTraits;

/// More dimensions than a head has.
constexpr size_t whole_head = 1024;

/// Bits that are a float's.
inline float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

/// Numbers as they are: a word holds neighbouring dimensions of a key, or tokens of a value.
template <class ElementType>
struct NumberFormat {
    using Element = ElementType;
    static constexpr bool quantized = false;
    static constexpr size_t bits = 8 * sizeof(Element);
    static constexpr size_t group = whole_head;
    static constexpr size_t nibbles = 1;
    static constexpr size_t dims_per_word = 32 / bits, tokens_per_word = 32 / bits;
};

/// Codes from 0 to `levels`: x = code * scale + minimum, both of a group of dimensions of a token.
template <size_t Bits, size_t Group>
struct CodeFormat {
    static constexpr bool quantized = true;
    static constexpr size_t bits = Bits;
    static constexpr size_t group = Group;                // dimensions, of 16 or more
    static constexpr size_t nibbles = Bits == 4 ? 2 : 1;  // dimensions in a byte of values
    static constexpr size_t dims_per_word = 32 / bits, tokens_per_word = 4;
    static constexpr float levels = (1 << bits) - 1;
    static constexpr size_t group_words = group / dims_per_word;  // of keys
    static float decode(uint32_t code) { return static_cast<float>(code); }
};

}  // namespace pagewheel::kernels
