// Members of a class, and values of an enum, as Python's: several at a time, each a name and what
// it names.
#pragma once

#include "bindings.hpp"

namespace pagewheel::python {

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
