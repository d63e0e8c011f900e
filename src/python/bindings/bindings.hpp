// One registration function per public header, in the order they depend on each other.
#pragma once

#include <pybind11/pybind11.h>

namespace pagewheel::python {

namespace py = pybind11;

void bind_errors(py::module_& module);
void bind_log(py::module_& module);
void bind_parser(py::module_& module);
void bind_generation_config(py::module_& module);
void bind_cache_eviction_config(py::module_& module);
void bind_scheduler_config(py::module_& module);
void bind_chat_history(py::module_& module);
void bind_tokenizer(py::module_& module);
void bind_parsers(py::module_& module);
void bind_perf_metrics(py::module_& module);
void bind_generation_handle(py::module_& module);
void bind_pipe_notifier(py::module_& module);
void bind_streamer(py::module_& module);
void bind_results(py::module_& module);
void bind_prefix_cache(py::module_& module);
void bind_cache_view(py::module_& module);
void bind_statistics(py::module_& module);
void bind_continuous_batching_pipeline(py::module_& module);
void bind_llm_pipeline(py::module_& module);
void bind_operations(py::module_& module);
void bind_structured_output(py::module_& module);
void bind_grammar(py::module_& module);

}  // namespace pagewheel::python
