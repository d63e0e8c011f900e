#include "pagewheel/perf_metrics.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "fields.hpp"

namespace pagewheel::python {

void bind_perf_metrics(py::module_& module) {
    py::class_<MeanStdPair>(module, "MeanStdPair", "-1 where nothing was measured.")
        .def(py::init([] { return MeanStdPair{0, 0}; }))
        .def_readonly("mean", &MeanStdPair::mean)
        .def_readonly("std", &MeanStdPair::std)
        .def("__iter__",
             [](const MeanStdPair& pair) { return py::iter(py::make_tuple(pair.mean, pair.std)); });

    using S = SummaryStats;
    py::class_<S> summary(module, "SummaryStats", "-1 where nothing was measured.");
    summary.def(py::init([] { return S{0, 0, 0, 0}; }))
        .def(
            "as_tuple", [](const S& s) { return py::make_tuple(s.mean, s.std, s.min, s.max); },
            "(mean, std, min, max).");
    read_only(summary, "mean", &S::mean, "std", &S::std, "min", &S::min, "max", &S::max);

    using R = RawPerfMetrics;
    py::class_<R> raw(module, "RawPerfMetrics", "Samples in microseconds, before any statistics.");
    raw.def(py::init<>());
    read_only(raw, "generate_durations", &R::generate_durations, "tokenization_durations",
              &R::tokenization_durations, "detokenization_durations", &R::detokenization_durations,
              "chat_template_durations", &R::chat_template_durations, "m_times_to_first_token",
              &R::m_times_to_first_token, "m_new_token_times", &R::m_new_token_times,
              "token_infer_durations", &R::token_infer_durations, "m_batch_sizes",
              &R::m_batch_sizes, "m_durations", &R::m_durations, "inference_durations",
              &R::inference_durations, "sampling_durations", &R::sampling_durations,
              "queue_durations", &R::queue_durations, "grammar_compile_times",
              &R::grammar_compile_times);

    using P = PerfMetrics;
    py::class_<P> metrics(
        module, "PerfMetrics",
        "Statistics in milliseconds (throughput: tokens per second). Sums join samples.");
    metrics.def(py::init<>())
        .def_readonly("raw_metrics", &P::raw_metrics)
        .def("get_num_prefix_cache_hit_tokens", &P::get_num_prefix_cache_hit_tokens,
             "Of the input tokens, those that were found in the prefix cache.")
        .def("get_ttft", &P::get_ttft, "Time to first token.")
        .def("get_tpot", &P::get_tpot, "Time per output token after the first.")
        .def("get_ipot", &P::get_ipot, "Inference time per step that gave tokens.")
        .def("get_queue_duration", &P::get_queue_duration,
             "From a request's arrival to its first step.")
        .def(
            "__add__", [](const P& self, const P& other) { return self + other; },
            py::arg("metrics"))
        .def(
            "__iadd__", [](P& self, const P& other) -> P& { return self += other; },
            py::arg("right"));
    methods(metrics, "get_load_time", &P::get_load_time, "get_num_generated_tokens",
            &P::get_num_generated_tokens, "get_num_input_tokens", &P::get_num_input_tokens,
            "get_throughput", &P::get_throughput, "get_generate_duration",
            &P::get_generate_duration, "get_inference_duration", &P::get_inference_duration,
            "get_tokenization_duration", &P::get_tokenization_duration,
            "get_detokenization_duration", &P::get_detokenization_duration,
            "get_chat_template_duration", &P::get_chat_template_duration, "get_sampling_duration",
            &P::get_sampling_duration, "get_grammar_compile_time", &P::get_grammar_compile_time,
            "get_grammar_compiler_init_times", &P::get_grammar_compiler_init_times);
}

}  // namespace pagewheel::python
