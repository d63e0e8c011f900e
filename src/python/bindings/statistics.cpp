#include "pagewheel/statistics.hpp"

#include "bindings.hpp"

namespace pagewheel::python {

namespace py = pybind11;

void bind_statistics(py::module_& module) {
    using T = StepStatistics;
    py::class_<T>(module, "StepStatistics",
                  "Of one step, or summed over many; times in microseconds.")
        .def_readonly("num_sequences", &T::num_sequences)
        .def_readonly("num_tokens", &T::num_tokens)
        .def_readonly("num_generated_tokens", &T::num_generated_tokens)
        .def_readonly("schedule_time", &T::schedule_time)
        .def_readonly("fill_time", &T::fill_time)
        .def_readonly("infer_time", &T::infer_time)
        .def_readonly("sampling_time", &T::sampling_time)
        .def_readonly("text_time", &T::text_time);

    using P = PipelineStatistics;
    py::class_<P>(module, "PipelineStatistics",
                  R"(State after the latest step, and sums since the pipeline was made.

Blocks of the KV cache: used (held by running sequences) + cached (kept for prefixes) + free = all.)")
        .def_readonly("num_blocks", &P::num_blocks)
        .def_readonly("num_used_blocks", &P::num_used_blocks)
        .def_readonly("num_cached_blocks", &P::num_cached_blocks)
        .def_readonly("num_free_blocks", &P::num_free_blocks)
        .def_readonly("max_used_blocks", &P::max_used_blocks)
        .def_readonly("mean_used_blocks", &P::mean_used_blocks)
        .def_readonly("num_prefix_blocks", &P::num_prefix_blocks)
        .def_readonly("block_bytes", &P::block_bytes)
        .def_readonly("num_requests", &P::num_requests)
        .def_readonly("num_queued", &P::num_queued)
        .def_readonly("num_running", &P::num_running)
        .def_readonly("num_preempted", &P::num_preempted)
        .def_readonly("latest_step", &P::latest_step)
        .def_readonly("all_steps", &P::all_steps)
        .def_readonly("num_steps", &P::num_steps)
        .def_readonly("num_preemptions", &P::num_preemptions)
        .def_readonly("num_prompt_tokens", &P::num_prompt_tokens)
        .def_readonly("num_prefix_cache_hit_tokens", &P::num_prefix_cache_hit_tokens)
        .def("__repr__", &P::to_string);
}

}  // namespace pagewheel::python
