// Names of the decoder's inputs and outputs.
#pragma once

namespace pagewheel::ports {

// Of a model folder's decoder.
inline constexpr const char* input_ids = "input_ids";
inline constexpr const char* attention_mask = "attention_mask";
inline constexpr const char* position_ids = "position_ids";
inline constexpr const char* beam_idx = "beam_idx";
inline constexpr const char* logits = "logits";

// Of SDPAToPagedAttention. A layer's number follows a prefix.
inline constexpr const char* past_lens = "past_lens";
inline constexpr const char* subsequence_begins = "subsequence_begins";
inline constexpr const char* block_indices = "block_indices";
inline constexpr const char* block_indices_begins = "block_indices_begins";
inline constexpr const char* max_context_len = "max_context_len";
inline constexpr const char* score_window = "score_aggregation_window";
inline constexpr const char* key_cache_prefix = "key_cache.";
inline constexpr const char* value_cache_prefix = "value_cache.";
inline constexpr const char* block_indices_prefix = "block_indices.";

// Of pagewheel's passes.
inline constexpr const char* logits_rows = "logits_rows";
inline constexpr const char* batch_tables = "batch_tables";
inline constexpr const char* cache_directory = "cache_directory";

}  // namespace pagewheel::ports
