// One registration function per public header, in the order they depend on each other.
#pragma once

#include <pybind11/pybind11.h>

namespace pagewheel::python {

void bind_log(pybind11::module_& module);
void bind_generation_config(pybind11::module_& module);
void bind_cache_eviction_config(pybind11::module_& module);
void bind_scheduler_config(pybind11::module_& module);
void bind_chat_history(pybind11::module_& module);
void bind_tokenizer(pybind11::module_& module);
void bind_streamer(pybind11::module_& module);
void bind_perf_metrics(pybind11::module_& module);
void bind_generation_handle(pybind11::module_& module);
void bind_results(pybind11::module_& module);
void bind_prefix_cache(pybind11::module_& module);
void bind_statistics(pybind11::module_& module);
void bind_continuous_batching_pipeline(pybind11::module_& module);
void bind_llm_pipeline(pybind11::module_& module);
void bind_operations(pybind11::module_& module);

}  // namespace pagewheel::python
