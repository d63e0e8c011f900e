// Attention over a paged cache in place of attention over states.
#pragma once

#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Throws std::invalid_argument, with the name, for an input that a text decoder lacks or that
/// nobody would fill: a model with inputs_embeds, or with keys and values as inputs.
void check_decoder_inputs(const ov::Model& model);

/// Turns a stateful decoder (ScaledDotProductAttention over ReadValue/Assign states, as
/// optimum-intel and pagewheel.convert write it) into one with PagedAttention, cache inputs
/// key_cache.N and value_cache.N, and ragged tokens: input_ids and position_ids [tokens]. A model
/// that has cache inputs already is left alone. Throws std::invalid_argument if the model has no
/// such form.
void apply_paged_attention(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
