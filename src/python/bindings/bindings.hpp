// What all bindings share: one registration function per public header, in the order in which they
// depend on each other, and helpers for members and enums.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

namespace pagewheel::python {

namespace py = pybind11;

// clang-format off: it joins the lines one after the other, each time that it runs.
#define PAGEWHEEL_BINDINGS(BIND) \
    BIND(errors) \
    BIND(log) \
    BIND(parser) \
    BIND(structured_output) \
    BIND(generation_config) \
    BIND(cache_eviction_config) \
    BIND(scheduler_config) \
    BIND(chat_history) \
    BIND(tokenizer) \
    BIND(grammar) \
    BIND(perf_metrics) \
    BIND(generation_handle) \
    BIND(pipe_notifier) \
    BIND(streamer) \
    BIND(parsers) \
    BIND(results) \
    BIND(cache_view) \
    BIND(statistics) \
    BIND(prefix_cache) \
    BIND(continuous_batching_pipeline) \
    BIND(llm_pipeline) \
    BIND(operations)
// clang-format on

#define PAGEWHEEL_DECLARE(name) void bind_##name(py::module_& module);
PAGEWHEEL_BINDINGS(PAGEWHEEL_DECLARE)
#undef PAGEWHEEL_DECLARE

/// The name of an enumerator or, by its pointer, of a member: the compiler's, after the last colon.
template <auto value>
std::string name_of() {
    std::string_view text = __PRETTY_FUNCTION__;  // "... [with auto value = &Class::name; ...]"
    text.remove_prefix(text.find("value = ") + 8);
    text = text.substr(0, text.find_first_of(";]"));
    return std::string(text.substr(text.rfind(':') + 1));
}

/// Members as properties that can be read.
template <auto... members, class Class>
void read_only(Class& bound) {
    (bound.def_readonly(name_of<members>().c_str(), members), ...);
}

/// Members as properties that can be read and written.
template <auto... members, class Class>
void read_write(Class& bound) {
    (bound.def_readwrite(name_of<members>().c_str(), members), ...);
}

/// Methods whose names say all.
template <auto... all, class Class>
void methods(Class& bound) {
    (bound.def(name_of<all>().c_str(), all), ...);
}

/// to_string(), which repr() gives, too.
template <class Class>
void add_to_string(Class& bound) {
    bound.def("to_string", &Class::type::to_string).def("__repr__", &Class::type::to_string);
}

template <auto first, auto... rest>
void bind_enum(py::module_& module, const char* name, const char* doc = "") {
    py::enum_<decltype(first)> bound(module, name, doc);
    bound.value(name_of<first>().c_str(), first);
    (bound.value(name_of<rest>().c_str(), rest), ...);
}

}  // namespace pagewheel::python
