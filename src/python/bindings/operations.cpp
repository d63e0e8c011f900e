#include "pagewheel/operations.hpp"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"

namespace py = pybind11;

namespace pagewheel::python {

void bind_operations(py::module_& module) {
    py::class_<OperationCount>(module, "OperationCount", "Nodes of one type in a model's graph.")
        .def_readonly("operation", &OperationCount::operation)
        .def_readonly("runs_on", &OperationCount::runs_on, "\"pagewheel\" or \"openvino\".")
        .def_readonly("count", &OperationCount::count);
    py::class_<Operations>(module, "Operations", "What of a model runs where.")
        .def_readonly("counts", &Operations::counts, "Matrices and attention.")
        .def_readonly("left", &Operations::left, "Why MatMuls stay with OpenVINO.");
    module.def(
        "describe_operations",
        [](const std::filesystem::path& path, const std::string& device,
           const py::dict& properties) {
            const ov::AnyMap map = to_properties(properties).first;
            const Unlocked unlocked;
            return describe_operations(path, device, map);
        },
        py::arg("models_path"), py::arg("device") = "CPU", py::arg("properties") = py::dict(),
        R"(Which of a model's heavy operations a pipeline with these arguments would run where.
Raises ValueError as the pipeline does.)");
}

}  // namespace pagewheel::python
