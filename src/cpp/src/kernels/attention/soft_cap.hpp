// The soft cap of attention logits, for every vector ISA. Include only from *_avx2.cpp and
// *_avx512.cpp: everything is a template over the ISA (see write.hpp).
#pragma once

#include <cstddef>

namespace pagewheel::kernels {

/// tanh(x) per lane, relative error below 4e-7 for any x: Lambert's continued fraction to x^7 at
/// x / 2, and tanh(2u) = 2 tanh(u) / (1 + tanh(u)^2) put into the same division. Past 9 it is 1 in
/// f32.
template <class V>
[[gnu::always_inline]] inline typename V::F tanh_of(typename V::F x) {
    const auto u = V::mul(V::min(V::max(x, V::set(-9)), V::set(9)), V::set(0.5f));
    const auto s = V::mul(u, u);
    auto p = V::add(s, V::set(378));
    p = V::fma(p, s, V::set(17325));
    p = V::mul(u, V::fma(p, s, V::set(135135)));
    auto q = V::fma(V::set(28), s, V::set(3150));
    q = V::fma(q, s, V::set(62370));
    q = V::fma(q, s, V::set(135135));
    return V::div(V::mul(V::add(p, p), q), V::fma(q, q, V::mul(p, p)));
}

/// logits [rows, stride], columns [begin, end) in whole vectors, become cap * tanh(logits / cap).
/// They are in powers of two, as the kernels keep them; `cap` is the config's.
template <class V>
void soft_cap(float* logits, size_t rows, size_t stride, size_t begin, size_t end, float cap) {
    const auto unit = V::set(cap * 1.44269504089f);
    const auto inverse = V::set(1 / (cap * 1.44269504089f));
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = begin; c < end; c += V::lanes) {
            float* at = logits + r * stride + c;
            V::store(at, V::mul(unit, tanh_of<V>(V::mul(V::load(at), inverse))));
        }
}

}  // namespace pagewheel::kernels
