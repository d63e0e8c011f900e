#include "kernels/logits.hpp"

#include "kernels/kernels.hpp"

namespace pagewheel::kernels {

size_t argmax(const float* x, size_t n, Isa isa) {
    return isa.kernels().logits.argmax(x, n);
}

double sum_exp(const float* x, size_t n, float shift, float scale, Isa isa) {
    return isa.kernels().logits.sum_exp(x, n, shift, scale);
}

size_t find_above(const float* x, size_t begin, size_t n, float threshold, Isa isa) {
    return isa.kernels().logits.find_above(x, begin, n, threshold);
}

}  // namespace pagewheel::kernels
