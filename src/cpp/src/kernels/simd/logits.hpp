// Arithmetic over one row of logits (kernels/logits.hpp), for any V (simd/vectors.hpp).
#pragma once

#include <limits>

#include "kernels/logits.hpp"
#include "kernels/simd/math.hpp"

namespace pagewheel::kernels::simd {

/// Floats that are summed up as such: so few that their sum is exact enough.
constexpr size_t sum_length = 1024;

/// How many of n numbers fill whole vectors.
template <class V>
constexpr size_t in_vectors(size_t n) {
    return n / V::lanes * V::lanes;
}

/// Calls body(begin, end) for pieces of whole vectors; gives where they end.
template <class V, class Body>
[[gnu::always_inline]] inline size_t for_pieces(size_t n, const Body& body) {
    const size_t whole = in_vectors<V>(n);
    for (size_t begin = 0; begin < whole; begin += sum_length)
        body(begin, begin + sum_length < whole ? begin + sum_length : whole);
    return whole;
}

/// The sum of the lanes of term(i) for the vectors that begin at i.
template <class V, class Term>
[[gnu::always_inline]] inline double sum_of(size_t n, const Term& term) {
    double sum = 0;
    for_pieces<V>(n, [&](size_t begin, size_t end) PAGEWHEEL_INLINE {
        auto partial = V::zero();
        for (size_t i = begin; i < end; i += V::lanes) partial = V::add(partial, term(i));
        sum += double(V::reduce_sum(partial));
    });
    return sum;
}

/// The lanes of x in [low, high].
template <class V>
[[gnu::always_inline]] inline typename V::Mask between(typename V::F x, typename V::F low,
                                                       typename V::F high) {
    return V::mask_and(V::greater_equal(x, low), V::greater_equal(high, x));
}

/// The largest of whole vectors [begin, end); lanes of `unordered` where one is NaN.
template <class V>
[[gnu::always_inline]] inline float largest_of(const float* x, size_t begin, size_t end,
                                               typename V::Mask& unordered) {
    constexpr size_t L = V::lanes;
    auto a = V::load(x + begin), b = a, c = a, d = a;
    unordered = V::mask_or(unordered, V::is_nan(a, a));
    size_t i = begin + L;
    for (; i + 4 * L <= end; i += 4 * L) {  // each maximum waits for the one before
        const auto p = V::load(x + i), q = V::load(x + i + L);
        const auto r = V::load(x + i + 2 * L), s = V::load(x + i + 3 * L);
        a = V::max(p, a), b = V::max(q, b), c = V::max(r, c), d = V::max(s, d);
        unordered = V::mask_or(unordered, V::mask_or(V::is_nan(p, q), V::is_nan(r, s)));
    }
    for (; i < end; i += L) {
        const auto p = V::load(x + i);
        a = V::max(p, a);
        unordered = V::mask_or(unordered, V::is_nan(p, p));
    }
    return V::reduce_max(V::max(V::max(a, b), V::max(c, d)));
}

template <class V>
size_t argmax(const float* x, size_t n) {
    float maximum = -__builtin_inff();
    size_t piece = 0, piece_end = 0;  // the first one that has it
    auto unordered = V::mask(0);
    const size_t whole = for_pieces<V>(n, [&](size_t begin, size_t end) PAGEWHEEL_INLINE {
        const float largest = largest_of<V>(x, begin, end, unordered);
        if (!(largest > maximum) && piece_end > 0) return;
        maximum = largest, piece = begin, piece_end = end;
    });
    bool has_nan = V::mask_bits(unordered) != 0;
    for (size_t i = whole; i < n; ++i) has_nan |= __builtin_isnan(x[i]);
    if (has_nan || whole == 0) return scalar_logits.argmax(x, n);
    const size_t above = scalar_logits.find_above(x, whole, n, maximum);
    if (above < n) return above + scalar_logits.argmax(x + above, n - above);
    const auto wanted = V::set(maximum);
    for (size_t i = piece; i < piece_end; i += V::lanes)
        if (const unsigned equal = V::mask_bits(V::equal(V::load(x + i), wanted)))
            return i + size_t(__builtin_ctz(equal));
    return 0;
}

template <class V>
bool find_maxima(const float* x, size_t n, float* out) {
    auto unordered = V::mask(0);
    const size_t whole = n / group_size * group_size;
    for (size_t begin = 0; begin < whole; begin += group_size)
        *out++ = largest_of<V>(x, begin, begin + group_size, unordered);
    return V::mask_bits(unordered) == 0 && scalar_logits.find_maxima(x + whole, n - whole, out);
}

/// exp((x - shift) * scale) by powers of two, for which there is less to compute.
template <class V>
class Weights {
public:
    Weights(float shift, float scale)
        : m_shift(V::set(shift)),
          m_scale(V::set(bits_per_nat * scale < most ? bits_per_nat * scale : most)) {}

    [[gnu::always_inline]] typename V::F operator()(typename V::F x) const {
        const auto e = V::mul(V::sub(x, m_shift), m_scale);
        if constexpr (V::scales_by_any_power)
            return exp2_by<V>(V::max(e, V::set(-150.0f)), power);  // of infinity it would be NaN
        const auto lowest = V::set(-126.0f);
        return V::zero_unless(V::greater_equal(e, lowest), exp2_by<V>(V::max(e, lowest), power));
    }

private:
    static constexpr float bits_per_nat = 1.44269504f, most = __FLT_MAX__;

    /// 2^r on [-1/2, 1/2], relative error below 3e-7; 1 at 0, so that what is sure has all the
    /// weight.
    [[gnu::always_inline]] static typename V::F power(typename V::F r) {
        return polynomial<V>(r, 1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f,
                             2.4022651e-1f, 6.9314718e-1f, 1.0f);
    }

    typename V::F m_shift, m_scale;
};

template <class V>
double sum_exp(const float* x, size_t n, float shift, float scale) {
    const Weights<V> weights(shift, scale);
    const size_t whole = in_vectors<V>(n);
    return sum_of<V>(n, [&](size_t i) PAGEWHEEL_INLINE { return weights(V::load(x + i)); }) +
           scalar_logits.sum_exp(x + whole, n - whole, shift, scale);
}

template <class V>
double weigh(const float* x, size_t n, float shift, float scale, float* out) {
    const Weights<V> weights(shift, scale);
    const size_t whole = in_vectors<V>(n);
    const double sum = sum_of<V>(n, [&](size_t i) PAGEWHEEL_INLINE {
        const auto weight = weights(V::load(x + i));
        V::store(out + i, weight);
        return weight;
    });
    return sum + scalar_logits.weigh(x + whole, n - whole, shift, scale, out + whole);
}

template <class V>
size_t find_above(const float* x, size_t begin, size_t n, float threshold) {
    const auto limit = V::set(threshold);
    for (; begin + V::lanes <= n; begin += V::lanes)
        if (const unsigned above = V::mask_bits(V::greater(V::load(x + begin), limit)))
            return begin + size_t(__builtin_ctz(above));
    return scalar_logits.find_above(x, begin, n, threshold);
}

/// Every vector is packed, also where nothing of it stays: a branch would be foreseen badly.
template <class V, bool has_weights, bool has_ids>
Kept keep_between_in(const TokenView& tokens, float low, float high, const TokenColumns& out) {
    const auto lows = V::set(low), highs = V::set(high);
    const auto [logits, weights, ids, size, first_id, maxima] = tokens;
    const auto [out_logits, out_weights, out_ids] = out;
    size_t count = 0, num_above = 0;
    double inside_amount = 0, above_amount = 0;
    const size_t whole =
        for_pieces<V>(size, [&, logits = logits, weights = weights, ids = ids, first_id = first_id,
                             out_logits = out_logits, out_weights = out_weights,
                             out_ids = out_ids](size_t begin, size_t end) PAGEWHEEL_INLINE {
            auto inside_sum = V::zero(), above_sum = V::zero();
            size_t at = count, above_count = 0;
            for (size_t i = begin; i < end; i += V::lanes) {
                const auto x = V::load(logits + i);
                const auto above = V::greater(x, highs);
                const auto inside = between<V>(x, lows, highs);
                auto numbers = V::set_words(0);
                if constexpr (has_ids)
                    numbers = V::load_words(ids + i);
                else
                    numbers = V::add_words(V::set_words(first_id + static_cast<uint32_t>(i)),
                                           V::iota_words());
                if constexpr (has_weights) {
                    const auto weight = V::load(weights + i);
                    above_sum = V::add(above_sum, V::zero_unless(above, weight));
                    inside_sum = V::add(inside_sum, V::zero_unless(inside, weight));
                    V::compress_store(out_weights + at, inside, weight);
                } else {
                    above_count += static_cast<size_t>(__builtin_popcount(V::mask_bits(above)));
                }
                V::compress_store(out_logits + at, inside, x);
                V::compress_store(out_ids + at, inside, numbers);
                at += static_cast<size_t>(__builtin_popcount(V::mask_bits(inside)));
            }
            count = at;
            num_above += above_count;
            inside_amount += double(V::reduce_sum(inside_sum));
            above_amount += double(V::reduce_sum(above_sum));
        });
    if constexpr (!has_weights) inside_amount = double(count), above_amount = double(num_above);
    const Kept rest =
        scalar_logits.keep_between(tokens.part(whole, size), low, high, out.from(count));
    return {count + rest.count, inside_amount + rest.inside, above_amount + rest.above};
}

template <class V>
Kept keep_between(const TokenView& tokens, float low, float high, const TokenColumns& out) {
    if (tokens.weights)
        return tokens.ids ? keep_between_in<V, true, true>(tokens, low, high, out)
                          : keep_between_in<V, true, false>(tokens, low, high, out);
    return tokens.ids ? keep_between_in<V, false, true>(tokens, low, high, out)
                      : keep_between_in<V, false, false>(tokens, low, high, out);
}

template <class V>
double sum_between(const float* x, const float* weights, size_t n, float low, float high) {
    const auto lows = V::set(low), highs = V::set(high);
    const size_t whole = in_vectors<V>(n);
    const double sum = sum_of<V>(n, [&](size_t i) PAGEWHEEL_INLINE {
        return V::zero_unless(between<V>(V::load(x + i), lows, highs), V::load(weights + i));
    });
    return sum + scalar_logits.sum_between(x + whole, weights + whole, n - whole, low, high);
}

template <class V>
double sum_weighted(const float* x, const float* weights, size_t n, float shift) {
    const auto shifts = V::set(shift);
    const size_t whole = in_vectors<V>(n);
    const double sum = sum_of<V>(n, [&](size_t i) PAGEWHEEL_INLINE {
        const auto weight = V::load(weights + i);
        const auto term = V::mul(weight, V::sub(V::load(x + i), shifts));
        return V::zero_unless(V::greater(weight, V::zero()), term);
    });
    return sum + scalar_logits.sum_weighted(x + whole, weights + whole, n - whole, shift);
}

template <class V>
Moments moments(const float* x, size_t n, float shift) {
    const auto shifts = V::set(shift), none = V::set(-__builtin_inff());
    Moments all;
    const size_t whole = for_pieces<V>(n, [&](size_t begin, size_t end) PAGEWHEEL_INLINE {
        auto sum = V::zero(), squares = V::zero();
        for (size_t i = begin; i < end; i += V::lanes) {
            const auto value = V::load(x + i);
            const auto counts = V::greater(value, none);
            const auto deviation = V::zero_unless(counts, V::sub(value, shifts));
            sum = V::add(sum, deviation);
            squares = V::fma(deviation, deviation, squares);
            all.count += static_cast<size_t>(__builtin_popcount(V::mask_bits(counts)));
        }
        all.sum += double(V::reduce_sum(sum));
        all.squares += double(V::reduce_sum(squares));
    });
    const Moments rest = scalar_logits.moments(x + whole, n - whole, shift);
    return {all.count + rest.count, all.sum + rest.sum, all.squares + rest.squares};
}

template <class V>
void negate_distances(const float* x, size_t n, float centre, float* out) {
    const auto centres = V::set(centre);
    const size_t whole = for_pieces<V>(n, [&](size_t begin, size_t end) PAGEWHEEL_INLINE {
        for (size_t i = begin; i < end; i += V::lanes)
            V::store(out + i, V::sub(V::zero(), V::abs(V::sub(V::load(x + i), centres))));
    });
    scalar_logits.negate_distances(x + whole, n - whole, centre, out + whole);
}

template <class V>
void ban_unset(float* x, const uint32_t* bits, size_t n) {
    constexpr size_t word = 32;
    const auto banned = V::set(-std::numeric_limits<float>::infinity());
    const size_t whole = n - n % word;
    for (size_t begin = 0; begin < whole; begin += word) {
        uint32_t allowed = bits[begin / word];
        if (allowed == ~uint32_t(0)) continue;  // of many tokens that are neighbours, most often
        for (size_t i = begin; i < begin + word; i += V::lanes) {
            V::store(x + i, V::select(V::mask_of_bits(allowed), V::load(x + i), banned));
            allowed >>= V::lanes;
        }
    }
    scalar_logits.ban_unset(x + whole, bits + whole / word, n - whole);
}

template <class V>
LogitsKernels logits_kernels() {
    return {argmax<V>,     find_maxima<V>,      sum_exp<V>,     weigh<V>,
            find_above<V>, keep_between<V>,     sum_between<V>, sum_weighted<V>,
            moments<V>,    negate_distances<V>, ban_unset<V>};
}

}  // namespace pagewheel::kernels::simd
