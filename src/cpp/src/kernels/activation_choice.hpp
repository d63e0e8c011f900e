// Which activations a call of a linear layer gets on this processor.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/isa.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

/// What is asked for. `automatic` goes by the table in activation_choice.cpp: by processor and
/// number of rows, never by a measurement, which would make answers depend on noise. `bf16` is what
/// `automatic` gives where there is bf16, and refused elsewhere: calls of few rows get int16, which
/// is more exact and no slower there.
enum class ActivationPrecision { automatic, int8, int16, bf16 };

/// "auto", "int8", "int16" or "bf16"; anything else throws InvalidArgument naming `key`, and
/// so does bf16 where the processor has no products of it.
ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name);

/// For a call of so many rows.
Activations choose_activations(ActivationPrecision precision, size_t rows, Isa isa);

/// What calls get there, in words.
std::string describe_activations(ActivationPrecision precision, Isa isa);

}  // namespace pagewheel::kernels
