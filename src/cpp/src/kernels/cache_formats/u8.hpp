// Keys and values in 8 bits, with one scale and one minimum for a head of a token.
#pragma once

#include "kernels/cache_formats/traits.hpp"

namespace pagewheel::kernels {

template <>
struct FormatTraits<CacheFormat::u8> : CodeFormat<8, whole_head> {
    static uint32_t pack_key(const uint8_t* codes) {
        uint32_t word;
        std::memcpy(&word, codes, sizeof word);
        return word;
    }
    template <class V, size_t G>
    [[gnu::always_inline]] static typename V::F element(typename V::I word) {
        return V::to_float(V::bit_and(V::template shift_right<8 * G>(word), 0xff));
    }
};

}  // namespace pagewheel::kernels
