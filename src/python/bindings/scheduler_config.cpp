#include "pagewheel/scheduler_config.hpp"

#include "bindings.hpp"
#include "fields.hpp"

namespace pagewheel::python {

void bind_scheduler_config(py::module_& module) {
    using C = SchedulerConfig;
    py::class_<C> config(module, "SchedulerConfig", R"(How requests share one step and one cache.

max_num_batched_tokens: most tokens one step computes: decodes first, then prefill chunks.
num_kv_blocks: blocks of the KV cache; 0: derived from cache_size.
cache_size: size of the KV cache in GB (2**30 bytes). With both 0, memory_fraction (0.5) of
  the free memory, and no more than max_num_seqs sequences of the model's context can use. On CPU it is
  address space: memory is taken as blocks are first used, and given back when most are free again.
dynamic_split_fuse: split prompts that exceed what is left of a step's tokens.
max_num_seqs: most sequences in one step.
max_queue: most requests that wait to be begun; one more raises QueueFullError. 0: no limit.
aging_steps: a request that waits gains one priority level per so many steps.
statistics_interval: one line of statistics to stderr or set_log_callback()'s per so many steps; 0: none.
enable_prefix_caching: keep the blocks of requests that ended, as long as nothing else needs them, for
  later ones that begin with the same tokens; requests that arrive together share their beginning.
use_cache_eviction: keep every sequence's cache within cache_eviction_config's budget. On CPU.)");
    read_write(config, "max_num_batched_tokens", &C::max_num_batched_tokens, "num_kv_blocks",
               &C::num_kv_blocks, "cache_size", &C::cache_size, "dynamic_split_fuse",
               &C::dynamic_split_fuse, "max_num_seqs", &C::max_num_seqs, "memory_fraction",
               &C::memory_fraction, "max_queue", &C::max_queue, "aging_steps", &C::aging_steps,
               "statistics_interval", &C::statistics_interval, "enable_prefix_caching",
               &C::enable_prefix_caching, "use_cache_eviction", &C::use_cache_eviction,
               "cache_eviction_config", &C::cache_eviction_config);
    config.def(py::init<>())
        .def("validate", &C::validate, "Raises ValueError if a parameter is out of range.")
        .def("to_string", &C::to_string)
        .def("__repr__", &C::to_string);
}

}  // namespace pagewheel::python
