// What a pipeline is doing, in numbers.
#pragma once

#include <cstddef>
#include <string>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Numbers of one step, or sums over many; times in microseconds.
struct StepStatistics {
    size_t num_sequences = 0;  ///< that computed something
    size_t num_tokens = 0;     ///< computed, of prompts and of sequences being continued
    size_t num_generated_tokens = 0;
    size_t num_drafted_tokens = 0;  ///< guessed, and computed beside the latest token
    size_t num_accepted_tokens =
        0;  ///< of them, those that were right: each saves its sequence a step
    size_t num_computed_drafts = 0;  ///< by a draft model, whether or not they were checked
    size_t num_draft_steps = 0;      ///< of a draft model
    double draft_time = 0;           ///< guessing tokens
    double schedule_time = 0;        ///< choosing the batch, and its accounts afterwards
    double fill_time = 0;            ///< batch to tensors
    double infer_time = 0;           ///< the model
    double sampling_time = 0;        ///< logits to tokens, their delivery, what is evicted after it
    double text_time = 0;            ///< of it, tokens to text, for stop strings

    StepStatistics& operator+=(const StepStatistics& other) {
        num_sequences += other.num_sequences;
        num_tokens += other.num_tokens;
        num_generated_tokens += other.num_generated_tokens;
        num_drafted_tokens += other.num_drafted_tokens;
        num_accepted_tokens += other.num_accepted_tokens;
        num_computed_drafts += other.num_computed_drafts;
        num_draft_steps += other.num_draft_steps;
        draft_time += other.draft_time;
        schedule_time += other.schedule_time;
        fill_time += other.fill_time;
        infer_time += other.infer_time;
        sampling_time += other.sampling_time;
        text_time += other.text_time;
        return *this;
    }
};

/// State after the latest step, and sums since the pipeline was made.
struct PAGEWHEEL_API PipelineStatistics {
    // Blocks of the KV cache: used + cached + free = all.
    size_t num_blocks = 0;
    size_t num_used_blocks = 0;    ///< held by running sequences
    size_t num_cached_blocks = 0;  ///< held by none, kept for prefixes
    size_t num_free_blocks = 0;
    size_t max_used_blocks = 0;    ///< after any step
    double mean_used_blocks = 0;   ///< over the last 1000 steps
    size_t num_prefix_blocks = 0;  ///< in the prefix cache, held by sequences or not
    size_t num_checkpoints = 0;    ///< there, of models whose layers keep states
    size_t block_size = 0;         ///< tokens of one block
    size_t block_bytes = 0;        ///< of one block in all layers, keys and values
    size_t draft_cache_bytes = 0;  ///< of a draft model's cache, which these blocks are not in

    size_t num_requests = 0;   ///< running and waiting
    size_t num_queued = 0;     ///< requests that were not begun
    size_t num_running = 0;    ///< sequences in the cache
    size_t num_preempted = 0;  ///< sequences that were, and are to be again

    StepStatistics latest_step;
    StepStatistics all_steps;
    size_t num_steps = 0;
    size_t num_preemptions = 0;
    size_t num_prompt_tokens = 0;            ///< of all prompts that were begun
    size_t num_prefix_cache_hit_tokens = 0;  ///< of them, found in the prefix cache
    size_t num_evicted_tokens = 0;           ///< by cache eviction, in each layer

    /// One line, as SchedulerConfig::statistics_interval prints it.
    std::string to_string() const;
};

/// PipelineStatistics under openvino_genai's names: metrics_of() makes it.
struct PipelineMetrics {
    size_t requests = 0;            ///< running and waiting
    size_t scheduled_requests = 0;  ///< sequences of the latest step
    float cache_usage = 0.0f;       ///< percent of the blocks that running requests hold
    float max_cache_usage = 0.0f;
    float avg_cache_usage = 0.0f;  ///< over the last 1000 steps
    size_t kv_cache_size_in_bytes = 0;
    size_t cache_size_in_bytes = 0;  ///< with that of a draft model
    size_t preemptions = 0;          ///< sequences dropped from the cache to be recomputed, so far
    size_t prompt_tokens = 0;        ///< of all prompts that were begun, so far
    size_t prefix_cache_hit_tokens = 0;  ///< of them, those found in the prefix cache
    float prefix_cache_usage = 0.0f;     ///< percent of the blocks that are in the prefix cache
};

PAGEWHEEL_API PipelineMetrics metrics_of(const PipelineStatistics& statistics);

}  // namespace pagewheel
