#include "pagewheel/operations.hpp"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"

namespace pagewheel::python {

void bind_operations(py::module_& module) {
    py::class_<OperationCount>(module, "OperationCount", "Nodes of one type in a model's graph.")
        .def_readonly("operation", &OperationCount::operation)
        .def_readonly("runs_on", &OperationCount::runs_on, "\"pagewheel\" or \"openvino\".")
        .def_readonly("count", &OperationCount::count);
    py::class_<FastPrefill>(
        module, "FastPrefill",
        "What of a prompt is computed only for the tokens whose logits are asked for.")
        .def_readonly("layers", &FastPrefill::layers,
                      "Layers whose attention's output is read for the tokens asked for alone.")
        .def_readonly("attention_nodes", &FastPrefill::attention_nodes,
                      "Those of them whose attention has queries for these tokens alone, too.")
        .def_readonly("work_skipped", &FastPrefill::work_skipped,
                      "Share, 0 to 1, of the multiplications by matrices but the vocabulary's that "
                      "is left out for a token nobody asks for.")
        .def_readonly("why", &FastPrefill::why, "What keeps more from being left out.");
    py::class_<Operations>(module, "Operations", "What of a model runs where.")
        .def_readonly("counts", &Operations::counts, "Matrices and attention.")
        .def_readonly("left", &Operations::left, "Why MatMuls stay with OpenVINO.")
        .def_readonly("linear", &Operations::linear,
                      "Kernels and activations of pagewheel's linear layers; empty: it has none.")
        .def_readonly("fast_prefill", &Operations::fast_prefill, "What it leaves out.");
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
    py::class_<Threads>(module, "Threads", "The threads of a pipeline.")
        .def_readonly("count", &Threads::count)
        .def_readonly("why", &Threads::why, "Why there are so many.");
    module.def(
        "describe_threads",
        [](const std::string& device, const py::dict& properties) {
            const ov::AnyMap map = to_properties(properties).first;
            const Unlocked unlocked;
            return describe_threads(device, map);
        },
        py::arg("device") = "CPU", py::arg("properties") = py::dict(),
        R"(How many threads a pipeline on CPU with these properties would run on, and why.
Raises ValueError as the pipeline does.)");
}

}  // namespace pagewheel::python
