#include "bindings.hpp"

PYBIND11_MODULE(_pagewheel, module) {
    module.doc() = "pagewheel's C++ core. Use it through the package pagewheel.";
#define PAGEWHEEL_BIND(name) pagewheel::python::bind_##name(module);
    PAGEWHEEL_BINDINGS(PAGEWHEEL_BIND)
}
