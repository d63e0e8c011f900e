// What all bindings share: one registration function per public header, in the order in which they
// depend on each other, and helpers for members and enums.
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

/// Calls define(name, value) for each pair.
template <class Define>
void define_all(const Define& /*define*/) {}
template <class Define, class Value, class... Rest>
void define_all(const Define& define, const char* name, Value value, Rest... rest) {
    define(name, value);
    define_all(define, rest...);
}

/// Members as properties that can be read.
template <class Class, class... NamesAndMembers>
void read_only(Class& bound, NamesAndMembers... all) {
    define_all([&](const char* name, auto member) { bound.def_readonly(name, member); }, all...);
}

/// Members as properties that can be read and written.
template <class Class, class... NamesAndMembers>
void read_write(Class& bound, NamesAndMembers... all) {
    define_all([&](const char* name, auto member) { bound.def_readwrite(name, member); }, all...);
}

/// Methods whose names say all.
template <class Class, class... NamesAndMethods>
void methods(Class& bound, NamesAndMethods... all) {
    define_all([&](const char* name, auto method) { bound.def(name, method); }, all...);
}

template <class Enum, class... NamesAndValues>
void bind_enum(py::module_& module, const char* name, const char* doc, NamesAndValues... all) {
    py::enum_<Enum> bound(module, name, doc);
    define_all([&](const char* of_value, Enum value) { bound.value(of_value, value); }, all...);
}

}  // namespace pagewheel::python
