// Which activations a call of a linear layer gets on this processor.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/isa.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

/// What is asked for: `automatic` leaves it to the table in activation_choice.cpp, which goes by
/// processor and number of rows.
enum class ActivationPrecision { automatic, int8, int16 };

/// "auto", "int8" or "int16"; anything else throws std::invalid_argument naming `key`.
ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name);

/// For a call of so many rows.
Activations choose_activations(ActivationPrecision precision, size_t rows, Isa isa);

}  // namespace pagewheel::kernels
