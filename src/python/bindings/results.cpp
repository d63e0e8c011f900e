#include "pagewheel/results.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"

namespace pagewheel::python {

namespace py = pybind11;

void bind_results(py::module_& module) {
    using E = EncodedResults;
    py::class_<E>(module, "EncodedResults",
                  "Tokens per prompt and sequence, prompts in the order they were given.")
        .def_readonly("tokens", &E::tokens)
        .def_readonly("scores", &E::scores)
        .def_readonly("finish_reasons", &E::finish_reasons)
        .def_readonly("perf_metrics", &E::perf_metrics);

    using D = DecodedResults;
    py::class_<D>(module, "DecodedResults",
                  "Texts per prompt and sequence, prompts in the order they were given.")
        .def(py::init<>())
        .def_readonly("texts", &D::texts)
        .def_readonly("scores", &D::scores)
        .def_readonly("finish_reasons", &D::finish_reasons)
        .def_readonly("perf_metrics", &D::perf_metrics)
        .def("__str__", &D::to_string);

    using EG = EncodedGenerationResult;
    py::class_<EG>(module, "EncodedGenerationResult", "Tokens of one request's sequences.")
        .def_readonly("m_request_id", &EG::m_request_id)
        .def_readonly("m_generation_ids", &EG::m_generation_ids)
        .def_readonly("m_scores", &EG::m_scores)
        .def_readonly("m_finish_reasons", &EG::m_finish_reasons)
        .def_readonly("m_status", &EG::m_status)
        .def_readonly("perf_metrics", &EG::perf_metrics);

    using G = GenerationResult;
    py::class_<G>(module, "GenerationResult", "Texts of one request's sequences.")
        .def_readonly("m_request_id", &G::m_request_id)
        .def_readwrite("m_generation_ids", &G::m_generation_ids)
        .def_readwrite("m_scores", &G::m_scores)
        .def_readonly("m_finish_reasons", &G::m_finish_reasons)
        .def_readwrite("m_status", &G::m_status)
        .def_readonly("perf_metrics", &G::perf_metrics)
        .def("get_generation_ids", [](const G& result) { return result.m_generation_ids; })
        .def("__repr__", [](const G& result) {
            std::string text =
                "GenerationResult(m_request_id=" + std::to_string(result.m_request_id);
            for (const std::string& generated : result.m_generation_ids)
                text += ", " + std::string(py::repr(py::str(generated)));
            return text + ")";
        });
}

}  // namespace pagewheel::python
