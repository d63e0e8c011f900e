// C++ exceptions as Python's: pagewheel.errors has the classes.
#include "pagewheel/errors.hpp"
#include "bindings.hpp"

namespace pagewheel::python {
namespace {

void raise(const char* name, const char* message, ErrorCode code, const std::string& parameter) {
    try {
        const py::object type = py::module_::import("pagewheel.errors").attr(name);
        const py::object error =
            type(message, py::arg("code") = to_string(code), py::arg("parameter") = parameter);
        PyErr_SetObject(type.ptr(), error.ptr());
    } catch (py::error_already_set& error) {  // no package around this module: stubs are made
        error.restore();
    }
}

void raise(const char* name, const Error& error) {
    raise(name, error.what(), error.code(), error.parameter());
}

}  // namespace

void bind_errors(py::module_& module) {
    py::register_local_exception_translator([](std::exception_ptr thrown) {
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const InvalidArgument& error) {
            raise("InvalidArgumentError", error);
        } catch (const py::value_error& error) {
            raise("InvalidArgumentError", error.what(), ErrorCode::invalid_parameter, {});
        } catch (const OutOfRange& error) {
            raise("OutOfRangeError", error);
        } catch (const QueueFull& error) {
            raise("QueueFullError", error);
        } catch (const PipelineFailed& error) {
            raise("PipelineFailedError", error);
        } catch (const Error& error) {
            raise("PagewheelError", error);
        }
    });
    module.def(
        "error_codes",
        [] {
            py::list names;
            for (const ErrorCode code : error_codes()) names.append(to_string(code));
            return names;
        },
        "All values of PagewheelError.code.");
}

}  // namespace pagewheel::python
