#include "pagewheel/statistics.hpp"

#include "bindings.hpp"
#include "fields.hpp"

namespace pagewheel::python {

void bind_statistics(py::module_& module) {
    using T = StepStatistics;
    py::class_<T> step(module, "StepStatistics",
                       "Of one step, or summed over many; times in microseconds.");
    read_only(step, "num_sequences", &T::num_sequences, "num_tokens", &T::num_tokens,
              "num_generated_tokens", &T::num_generated_tokens, "schedule_time", &T::schedule_time,
              "fill_time", &T::fill_time, "infer_time", &T::infer_time, "sampling_time",
              &T::sampling_time, "text_time", &T::text_time);

    using P = PipelineStatistics;
    py::class_<P> pipeline(module, "PipelineStatistics",
                           R"(State after the latest step, and sums since the pipeline was made.

Blocks of the KV cache: used (held by running sequences) + cached (kept for prefixes) + free = all.)");
    read_only(pipeline, "num_blocks", &P::num_blocks, "num_used_blocks", &P::num_used_blocks,
              "num_cached_blocks", &P::num_cached_blocks, "num_free_blocks", &P::num_free_blocks,
              "max_used_blocks", &P::max_used_blocks, "mean_used_blocks", &P::mean_used_blocks,
              "num_prefix_blocks", &P::num_prefix_blocks, "block_size", &P::block_size,
              "block_bytes", &P::block_bytes, "num_requests", &P::num_requests, "num_queued",
              &P::num_queued, "num_running", &P::num_running, "num_preempted", &P::num_preempted,
              "latest_step", &P::latest_step, "all_steps", &P::all_steps, "num_steps",
              &P::num_steps, "num_preemptions", &P::num_preemptions, "num_prompt_tokens",
              &P::num_prompt_tokens, "num_prefix_cache_hit_tokens", &P::num_prefix_cache_hit_tokens,
              "num_evicted_tokens", &P::num_evicted_tokens);
    pipeline.def("__repr__", &P::to_string);
}

}  // namespace pagewheel::python
