// Unicode code points as UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagewheel {

inline void append_utf8(std::string& text, uint32_t code) {
    if (code < 0x80) {
        text += char(code);
        return;
    }
    const int num_tails = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    text += char(0xFF00 >> (num_tails + 1) | code >> (6 * num_tails));
    for (int shift = 6 * (num_tails - 1); shift >= 0; shift -= 6)
        text += char(0x80 | (code >> shift & 0x3F));
}

/// What stands at the start of a text: `length` bytes of a character, or as much of one as is
/// there.
struct Utf8Character {
    size_t length;
    bool is_whole;
    uint32_t code = 0;  ///< where it is whole
};

/// Reads the beginning of a text that is not empty (Unicode 15, table 3-7).
inline Utf8Character read_utf8(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {1, true, lead};
    if (lead < 0xC2 || lead > 0xF4) return {1, false};
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
    const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    uint32_t code = lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; ++i) {
        const bool fits = i < text.size() && (i == 1 ? byte(i) >= lowest && byte(i) <= highest
                                                     : (byte(i) & 0xC0) == 0x80);
        if (!fits) return {i, false};
        code = code << 6 | (byte(i) & 0x3Fu);
    }
    return {length, true, code};
}

}  // namespace pagewheel
