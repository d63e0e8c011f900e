// Members of a struct, and values of an enum, as Python's: several at a time.
#pragma once

#include <pybind11/pybind11.h>

namespace pagewheel::python {

/// Each member as a property that can be read: name, pointer to member, name, pointer...
template <class Class>
void read_only(Class& /*bound*/) {}
template <class Class, class Pointer, class... Rest>
void read_only(Class& bound, const char* name, Pointer member, Rest... rest) {
    bound.def_readonly(name, member);
    read_only(bound, rest...);
}

/// The same, of properties that can be written too.
template <class Class>
void read_write(Class& /*bound*/) {}
template <class Class, class Pointer, class... Rest>
void read_write(Class& bound, const char* name, Pointer member, Rest... rest) {
    bound.def_readwrite(name, member);
    read_write(bound, rest...);
}

/// An enum of Python's with these values: name, value, name, value...
template <class Enum>
void enum_values(pybind11::enum_<Enum>& /*bound*/) {}
template <class Enum, class... Rest>
void enum_values(pybind11::enum_<Enum>& bound, const char* name, Enum value, Rest... rest) {
    bound.value(name, value);
    enum_values(bound, rest...);
}
template <class Enum, class... NamesAndValues>
void bind_enum(pybind11::module_& module, const char* name, const char* doc,
               NamesAndValues... names_and_values) {
    pybind11::enum_<Enum> bound(module, name, doc);
    enum_values(bound, names_and_values...);
}

}  // namespace pagewheel::python
