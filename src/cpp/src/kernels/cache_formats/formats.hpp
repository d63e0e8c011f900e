// Every cache format at compile time.
//
// FormatTraits<CacheFormat::name>, in name.hpp, says how a format lies in memory and what an
// element is. A format of numbers (NumberFormat) gives
//     float decode(uint32_t bits), uint32_t encode(float)         one element
//     void encode<E>(const float* x, size_t n, Element* out)      many, by a TokenWriter's E
// and a quantised one (CodeFormat)
//     uint32_t pack_key(const uint8_t* codes)                     of dims_per_word dimensions
// Both give
//     F element<V, G>(I word)        element G of each word: a number, or a code as a float
#pragma once

#include <type_traits>

#include "kernels/cache_formats/bf16.hpp"
#include "kernels/cache_formats/f16.hpp"
#include "kernels/cache_formats/f32.hpp"
#include "kernels/cache_formats/u4.hpp"
#include "kernels/cache_formats/u8.hpp"

namespace pagewheel::kernels {

/// Calls body(std::integral_constant<CacheFormat, format>()). V says whose object file that
/// is in (simd/vectors.hpp); void where the code is compiled for every processor.
template <class V, class Body>
auto for_format(CacheFormat format, const Body& body) {
    switch (format) {
#define PAGEWHEEL_CASE(name) \
    case CacheFormat::name:  \
        return body(std::integral_constant<CacheFormat, CacheFormat::name>());
        PAGEWHEEL_CACHE_FORMATS(PAGEWHEEL_CASE)
#undef PAGEWHEEL_CASE
    }
    __builtin_unreachable();
}

template <class V>
[[gnu::always_inline]] inline typename V::F scale_of(typename V::I word) {
    return V::half_to_float(word);
}
template <class V>
[[gnu::always_inline]] inline typename V::F minimum_of(typename V::I word) {
    return V::half_to_float(V::template shift_right<16>(word));
}

}  // namespace pagewheel::kernels
