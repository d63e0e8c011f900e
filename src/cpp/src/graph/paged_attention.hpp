// What every decoder gets: attention over a paged cache, and logits only for the rows that are
// sampled.
#pragma once

#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Throws InvalidArgument, with the name, for an input that a text decoder lacks or that
/// nobody would fill: a model with inputs_embeds, or with keys and values as inputs.
void check_decoder_inputs(const ov::Model& model);

/// What OpenVINO's attention is to give and take besides, for caches that are evicted from.
struct PagingOptions {
    bool per_layer_tables = false;  ///< inputs block_indices.N in place of block_indices
    /// Outputs scores.N: attention received by each key of the cache, of the last queries of each
    /// sequence, as many as the input score_aggregation_window says.
    bool scores = false;
};

/// Turns a stateful decoder (ScaledDotProductAttention over ReadValue/Assign states, as
/// optimum-intel and pagewheel.convert write it) into one with PagedAttention, cache inputs
/// key_cache.N and value_cache.N, and ragged tokens: input_ids and position_ids [tokens]. A model
/// that has cache inputs already is left alone. Throws InvalidArgument if the model has no
/// such form, or has cache inputs and not what the options ask for.
void apply_paged_attention(const std::shared_ptr<ov::Model>& model,
                           const PagingOptions& options = {});

/// Adds an input `sampled_tokens_indices` (i64 [rows], ascending; ports::sampled_tokens_indices)
/// and takes these rows before the vocabulary projection: output `logits` becomes f32 [rows,
/// vocabulary]. For an ov::Model after apply_paged_attention(). Throws InvalidArgument if there is
/// no output `logits` of rank 3.
void gather_logits(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
