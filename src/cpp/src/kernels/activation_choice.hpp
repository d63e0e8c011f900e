// Which activations a call of a linear layer gets on this processor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/isa.hpp"
#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {

/// Up to int16_rows calls get int16: reading the weights takes so long that twice the
/// multiplications cost little or nothing. Longer calls get bf16 where its products are fast, which
/// answers as f32 does and from there on takes no longer than int16; elsewhere int8.
struct AutomaticActivations {
    size_t int16_rows;
    Activations many_rows;
    std::string_view why;  ///< of many_rows, a clause
    /// The same of a routed expert's rows, in calls of more than int16_rows.
    size_t expert_int16_rows;
    /// Calls whose weights are all u4 get int16 whatever their number of rows: of these int16 takes
    /// 12 products where others take 16.
    bool int16_of_u4 = false;
};

/// What a processor with these features gets.
const AutomaticActivations& automatic_activations(Isa isa, CpuFeatures features);

/// What is asked for. `automatic` goes by the table in activation_choice.cpp: by processor and
/// number of rows, never by a measurement, which would make answers depend on noise. `bf16` is what
/// `automatic` gives where it gives bf16, and refused elsewhere: calls of few rows get int16, which
/// is more exact and no slower there. Where products of bf16 are slow, int16 is the better choice
/// for many rows too, so there are none.
enum class ActivationPrecision { automatic, int8, int16, bf16 };

/// "auto", "int8", "int16" or "bf16"; anything else throws InvalidArgument naming `key`, and
/// so does bf16 where `automatic` does not give it.
ActivationPrecision parse_activation_precision(const std::string& key, const std::string& name);

/// For a call of so many rows with weights of this form. Those in bf16 have activations in bf16,
/// whatever is asked for.
Activations choose_activations(ActivationPrecision precision, size_t rows, WeightForm form,
                               Isa isa);

/// Whether products of bf16 are fast there. Then linear layers take weights of 16 bits, too.
bool has_fast_bf16(Isa isa);

/// Calls of up to so many rows get the same activations.
size_t most_exact_rows(ActivationPrecision precision, Isa isa);

/// For a routed expert that so many of a call's rows chose.
Activations choose_expert_activations(ActivationPrecision precision, size_t rows,
                                      size_t expert_rows, WeightForm form, Isa isa);

/// What calls get there, in words; of what is chosen by processor, why.
std::string describe_activations(ActivationPrecision precision, Isa isa);

}  // namespace pagewheel::kernels
