// How requests share one step and one cache.
#pragma once

#include <cstddef>
#include <string>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Limits of a ContinuousBatchingPipeline; the names are those of openvino_genai.
struct PAGEWHEEL_API SchedulerConfig {
    /// Most tokens one step computes: decodes first, then prefill chunks.
    size_t max_num_batched_tokens = 512;
    /// Blocks of the KV cache. 0: derived from cache_size.
    size_t num_kv_blocks = 0;
    /// Size of the KV cache in GB (2^30 bytes). 0, with num_kv_blocks 0 too: memory_fraction of the
    /// free memory. On CPU it is address space: memory is taken as blocks are first used, and given
    /// back when most of them are free again.
    size_t cache_size = 0;
    /// The share of the free memory for the KV cache if nothing else sizes it; no more than
    /// max_num_seqs sequences of the model's context can use.
    float memory_fraction = 0.5f;
    /// Split prompts that exceed what is left of a step's tokens. If false, a prompt that a
    /// step can hold is computed in one, but with eviction and prefix caching for its end.
    bool dynamic_split_fuse = true;
    /// Most sequences in one step.
    size_t max_num_seqs = 256;
    /// Most requests that wait to be begun; one more is refused (QueueFull). 0: no limit.
    size_t max_queue = 0;
    /// A request that waits gains one priority level per so many steps, so that none starves.
    size_t aging_steps = 256;
    /// One line of statistics to the log (pagewheel/log.hpp) per so many steps. 0: none.
    size_t statistics_interval = 0;
    /// Keep the blocks of requests that ended, as long as nothing else needs them, for later ones
    /// that begin with the same tokens. Requests that arrive together share what they begin with.
    bool enable_prefix_caching = false;
    /// The share of the KV cache for checkpoints, which prefixes of models need whose layers keep
    /// states (docs/caching.md). At least one is kept, unless it is 0: then nothing is shared.
    float checkpoint_fraction = 0.1f;
    /// "exact" drafts tokens and checks several in one step where that pays and changes no bit: of
    /// a sequence that is alone. "auto": also in batches. "mtp": by the model's own head, too.
    /// "off": for requests with num_assistant_tokens or a prediction alone (docs/speculation.md).
    std::string speculation = "exact";
    /// Keeps every sequence's cache within cache_eviction_config's budget. On CPU.
    bool use_cache_eviction = false;
    CacheEvictionConfig cache_eviction_config;

    /// Throws InvalidArgument that names the parameter, its value and what is allowed.
    void validate() const;
    std::string to_string() const;
};

}  // namespace pagewheel
