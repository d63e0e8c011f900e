// Functions of a vector's lanes.
#pragma once

#include "kernels/simd/vectors.hpp"

namespace pagewheel::kernels::simd {

/// c[0] x^n + ... + c[n], by Horner's rule.
template <class V, class... Coefficients>
[[gnu::always_inline]] inline typename V::F polynomial(typename V::F x, float first,
                                                       Coefficients... rest) {
    auto p = V::set(first);
    ((p = V::fma(p, x, V::set(rest))), ...);
    return p;
}

/// exp(x), relative error below 3e-7, for x in [-87, 88]: x = n ln 2 + r, a polynomial of degree 6
/// for exp(r), and 2^n put into the exponent bits.
template <class V>
[[gnu::always_inline]] inline typename V::F exp(typename V::F x) {
    const auto n = V::round(V::mul(x, V::set(1.44269504089f)));
    // ln 2 in two parts, so that r keeps its low bits.
    auto r = V::fnma(n, V::set(0.693359375f), x);
    r = V::fnma(n, V::set(-2.12194440e-4f), r);
    return V::scale(polynomial<V>(r, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f),
                    n);
}

/// exp(x) for x up to 88; below -87 it is exp(-87), 2e-38.
template <class V>
[[gnu::always_inline]] inline typename V::F exp_from_below(typename V::F x) {
    return exp<V>(V::max(V::set(-87), x));
}

/// ln(1 + exp(x)) for any x: with y = exp(-|x|) and s = y / (2 + y), ln(1 + y) is
/// 2 (s + s^3 / 3 + s^5 / 5 + ...), relative error below 1e-6.
template <class V>
[[gnu::always_inline]] inline typename V::F softplus(typename V::F x) {
    const auto y = exp_from_below<V>(V::min(V::sub(V::zero(), x), x));
    const auto s = V::div(y, V::add(V::set(2), y));
    const auto series = polynomial<V>(V::mul(s, s), 1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7,
                                      1.0f / 5, 1.0f / 3, 1.0f);
    return V::fma(V::add(s, s), series, V::max(V::zero(), x));
}

/// x * sigmoid(gate). Not a number for a gate that is none, as the last operand of max() stays.
template <class V>
[[gnu::always_inline]] inline typename V::F gated(typename V::F x, typename V::F gate) {
    const auto bounded = V::min(V::set(87), V::max(V::set(-87), V::sub(V::zero(), gate)));
    return V::approximate_div(x, V::add(V::set(1), exp<V>(bounded)));
}

/// 2^x for x whose powers of two V::scale() can give: x = n + r, and polynomial(r) for 2^r.
template <class V, class Polynomial>
[[gnu::always_inline]] inline typename V::F exp2_by(typename V::F x,
                                                    const Polynomial& polynomial_of) {
    const auto n = V::round(x);
    return V::scale(polynomial_of(V::sub(x, n)), n);
}

/// 2^x, relative error below 3e-7, for any x up to 127; below -126 it may be 0. The polynomial of
/// degree 5 has the least relative error on [-1/2, 1/2].
template <class V>
[[gnu::always_inline]] inline typename V::F exp2(typename V::F x) {
    const auto power = [](typename V::F r) PAGEWHEEL_INLINE {
        return polynomial<V>(r, 0.00132764725f, 0.00967554189f, 0.0555071309f, 0.240221202f,
                             0.693146944f, 1.00000012f);
    };
    if constexpr (V::scales_by_any_power) {
        return exp2_by<V>(x, power);
    } else {
        const auto lowest = V::set(-126);
        return V::zero_unless(V::greater_equal(x, lowest), exp2_by<V>(V::max(x, lowest), power));
    }
}

/// One degree less: relative error below 3e-6, a tenth of what rounding to 15 bits adds.
template <class V>
[[gnu::always_inline]] inline typename V::F exp2_short(typename V::F x) {
    static_assert(V::scales_by_any_power, "x may be anything");
    return exp2_by<V>(x, [](typename V::F r) PAGEWHEEL_INLINE {
        return polynomial<V>(r, 0.0095701013f, 0.05591786f, 0.24024744f, 0.6931218f, 0.9999993f);
    });
}

/// 2^x for x in [0, 1), relative error below 7.5e-5.
template <class V>
[[gnu::always_inline]] inline typename V::F exp2_of_fraction(typename V::F x) {
    return polynomial<V>(x, 0.0780243764f, 0.226067362f, 0.695833473f, 0.999925216f);
}

/// log2(x) for positive x that are no denormals, to 1.3e-5.
template <class V>
[[gnu::always_inline]] inline typename V::F log2(typename V::F x) {
    const auto bits = V::as_words(x);
    const auto exponent = V::sub(V::to_float(V::template shift_right<23>(bits)), V::set(127));
    const auto one = V::as_words(V::set(1));
    const auto mantissa = V::as_float(V::add_words(V::bit_and(bits, 0x7fffff), one));
    return V::add(exponent,
                  polynomial<V>(V::sub(mantissa, V::set(1)), 0.0448724633f, -0.192192808f,
                                0.413627691f, -0.707991806f, 1.44168446f, 1.25406651e-5f));
}

/// tanh(x), relative error below 4e-7 for any x: Lambert's continued fraction to x^7 at x / 2, and
/// tanh(2u) = 2 tanh(u) / (1 + tanh(u)^2) put into the same division. Past 9 it is 1 in f32.
template <class V>
[[gnu::always_inline]] inline typename V::F tanh(typename V::F x) {
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

/// The soft cap of attention logits, cap * tanh(logits / cap). Logits are in powers of two, as the
/// kernels keep them; `cap` is the config's.
template <class V>
[[gnu::always_inline]] inline typename V::F soft_capped(typename V::F logits, float cap) {
    const auto unit = V::set(cap * 1.44269504089f);
    const auto inverse = V::set(1 / (cap * 1.44269504089f));
    return V::mul(unit, tanh<V>(V::mul(logits, inverse)));
}

/// Caps logits [rows, stride], columns [begin, end) in whole vectors.
template <class V>
void soft_cap(float* logits, size_t rows, size_t stride, size_t begin, size_t end, float cap) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t c = begin; c < end; c += V::lanes) {
            float* at = logits + r * stride + c;
            V::store(at, soft_capped<V>(V::load(at), cap));
        }
}

}  // namespace pagewheel::kernels::simd
