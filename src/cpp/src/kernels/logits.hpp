// Arithmetic over one row of logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// Values that one maximum stands for: a few vectors, so that there is no more to look at than to
/// compute.
constexpr size_t group_size = 256;

/// Tokens of a row, in the order of their ids.
struct TokenView {
    const float* logits = nullptr;   ///< [size]
    const float* weights = nullptr;  ///< [size], or null: not known
    const uint32_t* ids = nullptr;   ///< [size], or null: token i has the id first_id + i
    size_t size = 0;
    uint32_t first_id = 0;
    const float* maxima = nullptr;  ///< of groups, or null; no kernel reads them

    [[gnu::always_inline]] TokenView part(size_t begin, size_t end) const {
        return {
            logits + begin, weights ? weights + begin : nullptr,     ids ? ids + begin : nullptr,
            end - begin,    first_id + static_cast<uint32_t>(begin), nullptr};
    }
};

/// Where keep_between() writes: room for the view's size and `slack` more. `logits` and `ids` may
/// be the view's own.
struct TokenColumns {
    float* logits;
    float* weights;  ///< null where the view has none
    uint32_t* ids;

    static constexpr size_t slack = 16;

    [[gnu::always_inline]] TokenColumns from(size_t begin) const {
        return {logits + begin, weights ? weights + begin : nullptr, ids + begin};
    }
};

/// What keep_between() found. Amounts are weights; where they are not known, numbers of tokens.
struct Kept {
    size_t count = 0;
    double inside = 0;  ///< amount of those that were kept
    double above = 0;   ///< amount of those whose logits are above the limits
};

struct Moments {
    size_t count = 0;
    double sum = 0, squares = 0;
};

/// The functions, for one instruction set. Those that sum add few floats at a time and these sums
/// in double: their relative error is below 1e-5, mostly below 1e-6.
struct LogitsKernels {
    /// Index of the first NaN; without one, of the largest value, the lowest index of equals. n >
    /// 0.
    size_t (*argmax)(const float* x, size_t n);

    /// out[g] is the largest of group g, which are x[g * group_size...], the last one maybe
    /// shorter. Whether no x is NaN; else out is of no use. n > 0.
    bool (*find_maxima)(const float* x, size_t n, float* out);

    /// Sum of exp((x[i] - shift) * scale) over [0, n). Meant for x[i] <= shift and scale > 0: no
    /// term overflows, and terms below exp(-87) count as zero.
    double (*sum_exp)(const float* x, size_t n, float shift, float scale);

    /// sum_exp(), and out[i] is each term.
    double (*weigh)(const float* x, size_t n, float shift, float scale, float* out);

    /// Index of the first of x[begin, n) that is greater than `threshold`; n if none is.
    size_t (*find_above)(const float* x, size_t begin, size_t n, float threshold);

    /// Writes the tokens with low <= logit <= high to `out`, in their order.
    Kept (*keep_between)(const TokenView& tokens, float low, float high, const TokenColumns& out);

    /// Sum of weights[i] over [0, n) where low <= x[i] <= high.
    double (*sum_between)(const float* x, const float* weights, size_t n, float low, float high);

    /// Sum of weights[i] * (x[i] - shift) over [0, n) where the weight is not 0.
    double (*sum_weighted)(const float* x, const float* weights, size_t n, float shift);

    /// The moments of the x[i] - shift where x[i] is not minus infinity.
    Moments (*moments)(const float* x, size_t n, float shift);

    /// out[i] = -|x[i] - centre|.
    void (*negate_distances)(const float* x, size_t n, float centre, float* out);

    /// x[i] becomes minus infinity where bit i % 32 of bits[i / 32] is 0.
    void (*ban_unset)(float* x, const uint32_t* bits, size_t n);
};

const LogitsKernels& logits_kernels(Isa isa);

/// The scalar ones, which take what does not fill a vector of the others.
extern const LogitsKernels scalar_logits;

}  // namespace pagewheel::kernels
