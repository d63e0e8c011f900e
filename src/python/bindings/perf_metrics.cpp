#include "pagewheel/perf_metrics.hpp"

#include <pybind11/operators.h>
#include <pybind11/stl.h>

#include "bindings.hpp"

namespace pagewheel::python {

namespace py = pybind11;

void bind_perf_metrics(py::module_& module) {
    py::class_<MeanStdPair>(module, "MeanStdPair", "-1 where nothing was measured.")
        .def(py::init<>())
        .def_readonly("mean", &MeanStdPair::mean)
        .def_readonly("std", &MeanStdPair::std)
        .def("__iter__",
             [](const MeanStdPair& pair) { return py::iter(py::make_tuple(pair.mean, pair.std)); });

    using R = RawPerfMetrics;
    py::class_<R>(module, "RawPerfMetrics", "Samples in microseconds, before any statistics.")
        .def(py::init<>())
        .def_readonly("generate_durations", &R::generate_durations)
        .def_readonly("tokenization_durations", &R::tokenization_durations)
        .def_readonly("detokenization_durations", &R::detokenization_durations)
        .def_readonly("chat_template_durations", &R::chat_template_durations)
        .def_readonly("m_times_to_first_token", &R::m_times_to_first_token)
        .def_readonly("m_new_token_times", &R::m_new_token_times)
        .def_readonly("token_infer_durations", &R::token_infer_durations)
        .def_readonly("m_batch_sizes", &R::m_batch_sizes)
        .def_readonly("m_durations", &R::m_durations)
        .def_readonly("inference_durations", &R::inference_durations)
        .def_readonly("sampling_durations", &R::sampling_durations);

    using P = PerfMetrics;
    py::class_<P>(module, "PerfMetrics",
                  "Statistics in milliseconds (throughput: tokens per second). Sums join samples.")
        .def(py::init<>())
        .def_readonly("raw_metrics", &P::raw_metrics)
        .def("get_load_time", &P::get_load_time)
        .def("get_num_generated_tokens", &P::get_num_generated_tokens)
        .def("get_num_input_tokens", &P::get_num_input_tokens)
        .def("get_num_prefix_cache_hit_tokens", &P::get_num_prefix_cache_hit_tokens,
             "Of the input tokens, those that were found in the prefix cache.")
        .def("get_ttft", &P::get_ttft, "Time to first token.")
        .def("get_tpot", &P::get_tpot, "Time per output token after the first.")
        .def("get_ipot", &P::get_ipot, "Inference time per step that gave tokens.")
        .def("get_throughput", &P::get_throughput)
        .def("get_generate_duration", &P::get_generate_duration)
        .def("get_inference_duration", &P::get_inference_duration)
        .def("get_tokenization_duration", &P::get_tokenization_duration)
        .def("get_detokenization_duration", &P::get_detokenization_duration)
        .def("get_chat_template_duration", &P::get_chat_template_duration)
        .def("get_sampling_duration", &P::get_sampling_duration)
        .def(py::self + py::self)
        .def(py::self += py::self);
}

}  // namespace pagewheel::python
