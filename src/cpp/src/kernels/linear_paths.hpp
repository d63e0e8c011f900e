// Which of a linear layer's two ways is the faster one, by processor and number of rows.
#pragma once

#include <cstddef>

#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// No number of rows.
constexpr size_t never = size_t(-1);

/// From how many rows on a call with weights of 4 or 8 bits has, with Activations::bf16, at least
/// `speed` times the speed of int8; `never` also where there is no bf16. From a table, not a
/// measurement: what a model answers must not depend on how fast the processor happened to be.
size_t rows_for_bf16(Isa isa, int bits, double speed = 1);

}  // namespace pagewheel::kernels
