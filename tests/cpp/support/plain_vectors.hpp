// Vectors in plain C++ (kernels/simd/vectors.hpp), so that tests run on any processor what is
// written for an instruction set that it lacks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels {
namespace {

/// AVX-512's shape; of a class of vectors what prefill kernels on tiles use.
struct PlainVectors {
    static constexpr size_t lanes = 16;
    static constexpr size_t columns = 4;
    static constexpr bool scales_by_any_power = true;

    template <class T>
    struct Lanes {
        T at[lanes];
    };
    using F = Lanes<float>;
    using I = Lanes<uint32_t>;
    using Halves = Lanes<uint16_t>;
    using Mask = Lanes<bool>;

    /// Lane i is f(i).
    template <class T = float, class Function>
    static Lanes<T> each(const Function& f) {
        Lanes<T> x;
        for (size_t i = 0; i < lanes; ++i) x.at[i] = f(i);
        return x;
    }

    static F set(float x) {
        return each([&](size_t) { return x; });
    }
    static F zero() { return set(0); }
    static F iota() {
        return each([](size_t i) { return float(i); });
    }
    static F load(const float* p) {
        return each([&](size_t i) { return p[i]; });
    }
    static F load(const float* p, const Mask& m) {
        return each([&](size_t i) { return m.at[i] ? p[i] : 0; });
    }
    static void store(float* p, const F& x) { std::memcpy(p, x.at, sizeof x.at); }
    static void store(float* p, const F& x, const Mask& m) {
        for (size_t i = 0; i < lanes; ++i)
            if (m.at[i]) p[i] = x.at[i];
    }
    static I load_words(const uint32_t* p) {
        return each<uint32_t>([&](size_t i) { return p[i]; });
    }
    static I load_words(const uint32_t* p, const Mask& m) {
        return each<uint32_t>([&](size_t i) { return m.at[i] ? p[i] : 0; });
    }
    static void store_halves(uint16_t* p, const Halves& x, size_t n) {
        std::memcpy(p, x.at, n * sizeof *p);
    }

    static Mask mask(size_t n) { return mask(0, n); }
    static Mask mask(size_t low, size_t high) {
        return each<bool>([&](size_t i) { return i >= low && i < high; });
    }
    static F select(const Mask& m, const F& a, const F& b) {
        return each([&](size_t i) { return m.at[i] ? a.at[i] : b.at[i]; });
    }
    static Mask greater(const F& a, const F& b) {
        return each<bool>([&](size_t i) { return a.at[i] > b.at[i]; });
    }
    static Mask equal(const F& a, const F& b) {
        return each<bool>([&](size_t i) { return a.at[i] == b.at[i]; });
    }
    static unsigned mask_bits(const Mask& m) {
        unsigned bits = 0;
        for (size_t i = 0; i < lanes; ++i) bits |= unsigned{m.at[i]} << i;
        return bits;
    }
    static F zero_unless(const Mask& m, const F& x) { return select(m, x, zero()); }

    static F add(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] + b.at[i]; });
    }
    static F sub(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] - b.at[i]; });
    }
    static F mul(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] * b.at[i]; });
    }
    static F approximate_div(const F& a, const F& b) { return div(a, b); }
    static F div(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] / b.at[i]; });
    }
    static F fma(const F& a, const F& b, const F& c) {
        return each([&](size_t i) { return a.at[i] * b.at[i] + c.at[i]; });
    }
    static void add_product(F& sum, const F& a, const F& b) { sum = fma(a, b, sum); }
    static F fnma(const F& a, const F& b, const F& c) {
        return each([&](size_t i) { return c.at[i] - a.at[i] * b.at[i]; });
    }
    static F max(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; });
    }
    static F min(const F& a, const F& b) {
        return each([&](size_t i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; });
    }
    static F round(const F& a) {
        return each([&](size_t i) { return std::nearbyint(a.at[i]); });
    }
    /// a 2^n for a whole n.
    static F scale(const F& a, const F& n) {
        return each([&](size_t i) { return a.at[i] * std::exp2(n.at[i]); });
    }
    static F exp2_rough(const F& x) {
        const F whole = each([&](size_t i) { return std::floor(x.at[i]); });
        // As the instruction has it, infinities have no fraction.
        const F fraction =
            each([&](size_t i) { return std::isinf(x.at[i]) ? 0 : x.at[i] - whole.at[i]; });
        return scale(simd::exp2_of_fraction<PlainVectors>(fraction), whole);
    }
    static F exp2(const F& x) { return simd::exp2<PlainVectors>(x); }
    static float reduce_sum(const F& x) {
        float sum = 0;
        for (const float lane : x.at) sum += lane;
        return sum;
    }
    static float reduce_max(const F& x) {
        float largest = x.at[0];
        for (const float lane : x.at) largest = lane > largest ? lane : largest;
        return largest;
    }
    template <size_t R>
    static void reduce_sums(const F (&x)[R], float* out) {
        for (size_t r = 0; r < R; ++r) out[r] = reduce_sum(x[r]);
    }
    template <size_t R>
    static void reduce_maxima(const F (&x)[R], float* out) {
        for (size_t r = 0; r < R; ++r) out[r] = reduce_max(x[r]);
    }

    template <int N>
    static I shift_right(const I& x) {
        return each<uint32_t>([&](size_t i) { return x.at[i] >> N; });
    }
    template <int N>
    static I shift_left(const I& x) {
        return each<uint32_t>([&](size_t i) { return x.at[i] << N; });
    }
    static I add_words(const I& a, const I& b) {
        return each<uint32_t>([&](size_t i) { return a.at[i] + b.at[i]; });
    }
    static I upper_halves(const F& first, const F& second) {
        return add_words(shift_right<16>(as_words(first)), bit_and(as_words(second), 0xffff0000));
    }
    static I rounded_halves(const F& first, const F& second) {
        return each<uint32_t>([&](size_t i) {
            return bf16_of_float(first.at[i]) | uint32_t{bf16_of_float(second.at[i])} << 16;
        });
    }
    static I set_words(uint32_t x) {
        return each<uint32_t>([&](size_t) { return x; });
    }
    static I bit_and(const I& x, uint32_t bits) {
        return each<uint32_t>([&](size_t i) { return x.at[i] & bits; });
    }
    static F as_float(const I& x) {
        F y;
        std::memcpy(y.at, x.at, sizeof y.at);
        return y;
    }
    static I as_words(const F& x) {
        I y;
        std::memcpy(y.at, x.at, sizeof y.at);
        return y;
    }
    static F to_float(const I& x) {
        return each([&](size_t i) { return float(x.at[i]); });
    }
    static Halves to_bf16(const F& x) {
        return each<uint16_t>([&](size_t i) { return bf16_of_float(x.at[i]); });
    }
    static F bf16_to_float(const Halves& x) {
        return each([&](size_t i) { return float_of_bf16(x.at[i]); });
    }
    /// out[i * stride + j] = rows[j][at + i] for i, j in [0, lanes), which may overlap.
    static void transpose(const float* const* rows, size_t at, float* out, size_t stride) {
        Lanes<Lanes<float>> x;
        for (size_t j = 0; j < lanes; ++j) x.at[j] = load(rows[j] + at);
        for (size_t j = 0; j < lanes; ++j)
            for (size_t i = 0; i < lanes; ++i) out[i * stride + j] = x.at[j].at[i];
    }

    static unsigned without_denormals() { return 0; }
    static void restore(unsigned) {}

    static float float_of(uint16_t half) { return float_of_half(half); }
    static F half_to_float(const I& x) {
        return each([&](size_t i) { return float_of(uint16_t(x.at[i])); });
    }
};

}  // namespace
}  // namespace pagewheel::kernels
