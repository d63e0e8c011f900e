// The soft cap of attention logits, for any V (simd/vectors.hpp).
#pragma once

#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::simd {

/// cap * tanh(logits / cap). Logits are in powers of two, as the kernels keep them; `cap` is the
/// config's.
template <class V>
[[gnu::always_inline]] inline typename V::F soft_capped(typename V::F logits, float cap) {
    const auto unit = V::set(cap * 1.44269504089f);
    const auto inverse = V::set(1 / (cap * 1.44269504089f));
    return V::mul(unit, tanh<V>(V::mul(logits, inverse)));
}

/// The same of logits [rows, stride], columns [begin, end) in whole vectors.
template <class V>
void soft_cap(float* logits, size_t rows, size_t stride, size_t begin, size_t end, float cap) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = begin; c < end; c += V::lanes) {
            float* at = logits + r * stride + c;
            V::store(at, soft_capped<V>(V::load(at), cap));
        }
}

}  // namespace pagewheel::kernels::simd
