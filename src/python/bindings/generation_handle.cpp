#include "pagewheel/generation_handle.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"

namespace pagewheel::python {

namespace py = pybind11;

void bind_generation_handle(py::module_& module) {
    py::enum_<GenerationStatus>(module, "GenerationStatus")
        .value("RUNNING", GenerationStatus::RUNNING)
        .value("FINISHED", GenerationStatus::FINISHED)
        .value("IGNORED", GenerationStatus::IGNORED)
        .value("CANCEL", GenerationStatus::CANCEL)
        .value("STOP", GenerationStatus::STOP);
    py::enum_<GenerationFinishReason>(module, "GenerationFinishReason")
        .value("NONE", GenerationFinishReason::NONE)
        .value("STOP", GenerationFinishReason::STOP)
        .value("LENGTH", GenerationFinishReason::LENGTH);

    using O = GenerationOutput;
    py::class_<O>(module, "GenerationOutput", "Tokens of one sequence.")
        .def_readwrite("generated_ids", &O::generated_ids)
        .def_readwrite("generated_log_probs", &O::generated_log_probs)
        .def_readwrite(
            "prompt_log_probs", &O::prompt_log_probs,
            "Of the prompt's tokens from the second on, if echo and logprobs were asked.")
        .def_readwrite("score", &O::score)
        .def_readwrite("finish_reason", &O::finish_reason);

    using H = GenerationHandle;
    py::class_<H, std::shared_ptr<H>>(
        module, "GenerationHandle",
        "Reads what one request generates, from any thread. The request goes on if it is dropped.")
        .def("get_status", &H::get_status)
        .def("can_read", &H::can_read)
        .def("read", &H::read, "Tokens generated since the last read, by index of the sequence.")
        .def("read_all", &H::read_all,
             "Everything generated so far, in the order of the sequences.")
        .def("stop", &H::stop, "End at the next step and keep what there is.")
        .def("cancel", &H::cancel, "End at the next step.")
        .def("get_perf_metrics", &H::get_perf_metrics);
}

}  // namespace pagewheel::python
