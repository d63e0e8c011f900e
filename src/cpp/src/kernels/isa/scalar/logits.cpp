#include "kernels/logits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagewheel::kernels {
namespace {

size_t argmax(const float* x, size_t n) {
    size_t best = 0;
    for (size_t i = 0; i < n; ++i) {
        if (std::isnan(x[i])) return i;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

bool find_maxima(const float* x, size_t n, float* out) {
    for (size_t begin = 0; begin < n; begin += group_size) {
        const size_t size = std::min(group_size, n - begin);
        const size_t best = argmax(x + begin, size);
        if (std::isnan(x[begin + best])) return false;
        out[begin / group_size] = x[begin + best];
    }
    return true;
}

double sum_exp(const float* x, size_t n, float shift, float scale) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        const float exponent = (x[i] - shift) * scale;
        if (exponent > -87.0f) sum += std::exp(exponent);
    }
    return sum;
}

double weigh(const float* x, size_t n, float shift, float scale, float* out) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        const float exponent = (x[i] - shift) * scale;
        out[i] = exponent > -87.0f ? std::exp(exponent) : 0.0f;
        sum += out[i];
    }
    return sum;
}

size_t find_above(const float* x, size_t begin, size_t n, float threshold) {
    while (begin < n && !(x[begin] > threshold)) ++begin;
    return begin;
}

Kept keep_between(const TokenView& tokens, float low, float high, const TokenColumns& out) {
    Kept kept;
    for (size_t i = 0; i < tokens.size; ++i) {
        const float x = tokens.logits[i];
        const double amount = tokens.weights ? double(tokens.weights[i]) : 1.0;
        if (x > high) kept.above += amount;
        if (!(x >= low && x <= high)) continue;
        kept.inside += amount;
        out.logits[kept.count] = x;
        if (tokens.weights) out.weights[kept.count] = tokens.weights[i];
        out.ids[kept.count++] = tokens.ids ? tokens.ids[i] : tokens.first_id + uint32_t(i);
    }
    return kept;
}

double sum_between(const float* x, const float* weights, size_t n, float low, float high) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i)
        if (x[i] >= low && x[i] <= high) sum += weights[i];
    return sum;
}

double sum_weighted(const float* x, const float* weights, size_t n, float shift) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i)
        if (weights[i] > 0) sum += double(weights[i]) * (x[i] - shift);
    return sum;
}

Moments moments(const float* x, size_t n, float shift) {
    Moments moments;
    for (size_t i = 0; i < n; ++i) {
        if (x[i] == -std::numeric_limits<float>::infinity()) continue;
        const double deviation = double(x[i]) - shift;
        ++moments.count;
        moments.sum += deviation;
        moments.squares += deviation * deviation;
    }
    return moments;
}

void negate_distances(const float* x, size_t n, float centre, float* out) {
    for (size_t i = 0; i < n; ++i) out[i] = -std::abs(x[i] - centre);
}

void ban_unset(float* x, const uint32_t* bits, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if ((bits[i / 32] >> (i % 32) & 1) == 0) x[i] = -std::numeric_limits<float>::infinity();
}

}  // namespace

const LogitsKernels scalar_logits = {argmax,     find_maxima,      sum_exp,     weigh,
                                     find_above, keep_between,     sum_between, sum_weighted,
                                     moments,    negate_distances, ban_unset};

}  // namespace pagewheel::kernels
