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

}  // namespace pagewheel::kernels
