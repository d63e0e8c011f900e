// C++ exceptions as Python's: pagewheel.errors has the classes.
#include "pagewheel/errors.hpp"
#include "bindings.hpp"

namespace pagewheel::python {
namespace {

void raise(const char* name, const char* message) {
    try {
        py::set_error(py::module_::import("pagewheel.errors").attr(name), message);
    } catch (py::error_already_set& error) {  // no package around this module: stubs are made
        error.restore();
    }
}

}  // namespace

void bind_errors() {
    py::register_local_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const InvalidArgument& error) {
            raise("InvalidArgumentError", error.what());
        } catch (const py::value_error& error) {
            raise("InvalidArgumentError", error.what());
        } catch (const OutOfRange& error) {
            raise("OutOfRangeError", error.what());
        }
    });
}

}  // namespace pagewheel::python
