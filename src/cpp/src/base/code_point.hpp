// Unicode code points as UTF-8.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace pagewheel
