// Names of the decoder's inputs and outputs.
#pragma once

namespace pagewheel::ports {

// Of a model folder's decoder.
inline constexpr const char* input_ids = "input_ids";
inline constexpr const char* attention_mask = "attention_mask";
inline constexpr const char* position_ids = "position_ids";
inline constexpr const char* beam_idx = "beam_idx";
inline constexpr const char* logits = "logits";
inline constexpr const char* hidden_states = "hidden_states";  // of a head (ModelFolder::head())

// Of SDPAToPagedAttention. A layer's number follows a prefix.
inline constexpr const char* past_lens = "past_lens";
inline constexpr const char* subsequence_begins = "subsequence_begins";
inline constexpr const char* block_indices = "block_indices";
inline constexpr const char* block_indices_begins = "block_indices_begins";
inline constexpr const char* max_context_len = "max_context_len";
inline constexpr const char* score_window = "score_aggregation_window";
inline constexpr const char* key_cache_prefix = "key_cache.";
inline constexpr const char* value_cache_prefix = "value_cache.";
inline constexpr const char* conv_state_prefix = "conv_state_table.";
inline constexpr const char* gated_delta_state_prefix = "gated_delta_state_table.";
inline constexpr const char* selective_ssm_state_prefix = "selective_ssm_state_table.";
inline constexpr const char* block_indices_prefix = "block_indices.";

// Of pagewheel's passes.
// logits_indices are rows of the batch's new tokens, ascending; sampled_tokens_indices are rows of
// these, or of the batch's tokens in a model without logits_indices.
inline constexpr const char* logits_indices = "logits_indices";
inline constexpr const char* sampled_tokens_indices = "sampled_tokens_indices";
inline constexpr const char* last_hidden_state = "last_hidden_state";
inline constexpr const char* batch_tables = "batch_tables";
inline constexpr const char* cache_directory = "cache_directory";

// Inputs of OpenVINO's attention that has queries for logits indices alone. They describe only the
// sequences that have any.
inline constexpr const char* logits_past_lens = "logits_past_lens";
inline constexpr const char* logits_subsequence_begins = "logits_subsequence_begins";
inline constexpr const char* logits_block_indices = "logits_block_indices";
inline constexpr const char* logits_block_indices_begins = "logits_block_indices_begins";

}  // namespace pagewheel::ports
