#include "pagewheel/scheduler_config.hpp"

#include "base/check.hpp"

namespace pagewheel {

void SchedulerConfig::validate() const {
    constexpr size_t max_gigabytes = size_t(1) << 20;
    check_argument(max_num_batched_tokens > 0, ParameterName("max_num_batched_tokens"),
                   " is 0; allowed: 1 or more");
    check_argument(max_num_seqs > 0, ParameterName("max_num_seqs"), " is 0; allowed: 1 or more");
    check_argument(aging_steps > 0 && aging_steps <= size_t(1) << 32, ParameterName("aging_steps"),
                   " is ", aging_steps, "; allowed: 1 to 2^32");
    check_argument(memory_fraction > 0 && memory_fraction <= 1, ParameterName("memory_fraction"),
                   " is ", memory_fraction, "; allowed: greater than 0, at most 1");
    if (use_cache_eviction) cache_eviction_config.validate();
    check_argument(cache_size <= max_gigabytes, ParameterName("cache_size"), " is ", cache_size,
                   " GB; allowed: at most ", max_gigabytes);
    check_argument(num_kv_blocks <= size_t(1) << 30, ParameterName("num_kv_blocks"), " is ",
                   num_kv_blocks, "; allowed: at most 2^30");
}

std::string SchedulerConfig::to_string() const {
    return concat("SchedulerConfig { max_num_batched_tokens: ", max_num_batched_tokens,
                  ", num_kv_blocks: ", num_kv_blocks, ", cache_size: ", cache_size,
                  ", memory_fraction: ", memory_fraction, ", max_queue: ", max_queue,
                  ", aging_steps: ", aging_steps, ", statistics_interval: ", statistics_interval,
                  ", dynamic_split_fuse: ", dynamic_split_fuse ? "true" : "false",
                  ", max_num_seqs: ", max_num_seqs,
                  ", enable_prefix_caching: ", enable_prefix_caching ? "true" : "false",
                  use_cache_eviction ? ", use_cache_eviction: true, cache_eviction_config: " +
                                           cache_eviction_config.to_string()
                                     : "",
                  " }");
}

}  // namespace pagewheel
