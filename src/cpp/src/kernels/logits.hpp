// Arithmetic over one row of logits.
#pragma once

#include <cstddef>

#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// Index of the first NaN; without one, of the largest value, the lowest index of equals. n > 0.
size_t argmax(const float* x, size_t n, Isa isa);

/// Sum of exp((x[i] - shift) * scale) over [0, n). Meant for x[i] <= shift and scale > 0: no term
/// overflows, and terms below exp(-87) count as zero. Relative error below 1e-5.
double sum_exp(const float* x, size_t n, float shift, float scale, Isa isa);

/// Index of the first of x[begin, n) that is greater than `threshold`; n if none is.
size_t find_above(const float* x, size_t begin, size_t n, float threshold, Isa isa);

/// The same of one ISA.
struct LogitsKernels {
    size_t (*argmax)(const float* x, size_t n);
    double (*sum_exp)(const float* x, size_t n, float shift, float scale);
    size_t (*find_above)(const float* x, size_t begin, size_t n, float threshold);
};

// The scalar ones, which take what does not fill a vector of the others.
size_t argmax_scalar(const float* x, size_t n);
double sum_exp_scalar(const float* x, size_t n, float shift, float scale);
size_t find_above_scalar(const float* x, size_t begin, size_t n, float threshold);

}  // namespace pagewheel::kernels
