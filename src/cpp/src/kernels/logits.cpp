#include "kernels/logits.hpp"

#include <cmath>

namespace pagewheel::kernels {

size_t argmax_scalar(const float* x, size_t n) {
    size_t best = 0;
    for (size_t i = 0; i < n; ++i) {
        if (std::isnan(x[i])) return i;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

double sum_exp_scalar(const float* x, size_t n, float shift, float scale) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        const float exponent = (x[i] - shift) * scale;
        if (exponent > -87.0f) sum += std::exp(exponent);
    }
    return sum;
}

size_t find_above_scalar(const float* x, size_t begin, size_t n, float threshold) {
    while (begin < n && !(x[begin] > threshold)) ++begin;
    return begin;
}

size_t argmax(const float* x, size_t n, Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512:
            return argmax_avx512(x, n);
        case Isa::avx2:
            return argmax_avx2(x, n);
#endif
        default:
            return argmax_scalar(x, n);
    }
}

double sum_exp(const float* x, size_t n, float shift, float scale, Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512:
            return sum_exp_avx512(x, n, shift, scale);
        case Isa::avx2:
            return sum_exp_avx2(x, n, shift, scale);
#endif
        default:
            return sum_exp_scalar(x, n, shift, scale);
    }
}

size_t find_above(const float* x, size_t begin, size_t n, float threshold, Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx512:
            return find_above_avx512(x, begin, n, threshold);
        case Isa::avx2:
            return find_above_avx2(x, begin, n, threshold);
#endif
        default:
            return find_above_scalar(x, begin, n, threshold);
    }
}

}  // namespace pagewheel::kernels
