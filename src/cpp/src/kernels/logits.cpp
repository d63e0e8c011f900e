#include "kernels/logits.hpp"

#include "kernels/kernels.hpp"

namespace pagewheel::kernels {

const LogitsKernels& logits_kernels(Isa isa) {
    return isa.kernels().logits;
}

}  // namespace pagewheel::kernels
