#include <stdexcept>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/log.hpp"

namespace pagewheel::python {
namespace {

/// A message may hold the name of a file, which need not be UTF-8.
py::str to_str(const std::string& text) {
    return py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "backslashreplace"));
}

LogCallback to_log_callback(py::object callable) {
    if (callable.is_none()) return {};
    if (!PyCallable_Check(callable.ptr()))
        throw py::type_error("callback must be None or a callable, got " + type_of(callable));
    return [shared = share(std::move(callable))](LogLevel level, const std::string& text) {
        const Locked locked;
        if (!call_from_engine("pagewheel.set_log_callback", *shared, level, to_str(text)))
            throw std::runtime_error("the log callback failed");  // stderr has the message then
    };
}

}  // namespace

void bind_log(py::module_& module) {
    py::enum_<LogLevel>(module, "LogLevel", "Of a message.")
        .value("INFO", LogLevel::INFO, "What was asked for: SchedulerConfig.statistics_interval.")
        .value("WARNING", LogLevel::WARNING, "What of a model or of properties is left out.");
    module.def(
        "set_log_callback",
        [](py::object callback) { set_log_callback(to_log_callback(std::move(callback))); },
        py::arg("callback"),
        R"(callback(level: LogLevel, text: str) gets the messages of the process from now on, one at a call and
without a newline. None: they go to stderr, as they do at first.

It is called by whichever thread has something to say, and may call everything, this too. A message that it
raises an exception at goes to stderr, and the exception to sys.unraisablehook; messages that come up inside it
on its own thread go to stderr. A child that os.fork() made keeps it. While the interpreter ends, stderr has
them again.)");
    py::module_::import("atexit").attr("register")(
        py::cpp_function([] { set_log_callback(nullptr); }));
}

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

}  // namespace

void bind_errors(py::module_& module) {
    py::register_local_exception_translator([](std::exception_ptr thrown) {
        const auto raise_as = [](const char* name, const Error& error) {
            raise(name, error.what(), error.code(), error.parameter());
        };
        try {
            if (thrown) std::rethrow_exception(thrown);
        } catch (const InvalidArgument& error) {
            raise_as("InvalidArgumentError", error);
        } catch (const py::value_error& error) {
            raise("InvalidArgumentError", error.what(), ErrorCode::invalid_parameter, {});
        } catch (const OutOfRange& error) {
            raise_as("OutOfRangeError", error);
        } catch (const QueueFull& error) {
            raise_as("QueueFullError", error);
        } catch (const PipelineFailed& error) {
            raise_as("PipelineFailedError", error);
        } catch (const Error& error) {
            raise_as("PagewheelError", error);
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
