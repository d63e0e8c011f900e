#include "pagewheel/results.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "fields.hpp"

namespace pagewheel::python {
namespace {

template <class Class>
void add_extended_metrics(Class& bound) {
    bound.def_property_readonly(
        "extended_perf_metrics", [](const py::object&) { return py::none(); },
        "None: no pipeline has metrics of two models.");
}

/// Of messages in JSON.
template <class Class, class Results>
void add_parsed(Class& bound, std::vector<std::string> Results::* parsed) {
    bound.def_property_readonly(
        "parsed",
        [parsed](const Results& results) {
            py::list messages;
            for (const std::string& message : results.*parsed) messages.append(from_json(message));
            return messages;
        },
        "A message for each text, as GenerationConfig.parsers or a TextParserStreamer made it; "
        "empty without them.");
}

}  // namespace

void bind_results(py::module_& module) {
    using E = EncodedResults;
    py::class_<E> encoded(module, "EncodedResults",
                          "Tokens per prompt and sequence, prompts in the order they were given.");
    read_only(encoded, "tokens", &E::tokens, "scores", &E::scores, "finish_reasons",
              &E::finish_reasons, "perf_metrics", &E::perf_metrics, "request_metrics",
              &E::request_metrics);
    add_extended_metrics(encoded);

    using D = DecodedResults;
    py::class_<D> decoded(module, "DecodedResults",
                          "Texts per prompt and sequence, prompts in the order they were given.");
    decoded.def(py::init<>()).def("__str__", &D::to_string);
    read_only(decoded, "texts", &D::texts, "scores", &D::scores, "finish_reasons",
              &D::finish_reasons, "perf_metrics", &D::perf_metrics, "request_metrics",
              &D::request_metrics);
    add_extended_metrics(decoded);
    add_parsed(decoded, &D::parsed);

    using EG = EncodedGenerationResult;
    py::class_<EG> tokens(module, "EncodedGenerationResult", "Tokens of one request's sequences.");
    tokens.def(py::init<>());
    read_only(tokens, "m_request_id", &EG::m_request_id, "finish_reasons", &EG::m_finish_reasons,
              "perf_metrics", &EG::perf_metrics, "request_metrics", &EG::request_metrics);
    read_write(tokens, "m_generation_ids", &EG::m_generation_ids, "m_scores", &EG::m_scores,
               "m_finish_reasons", &EG::m_finish_reasons, "m_status", &EG::m_status);
    add_extended_metrics(tokens);

    using G = GenerationResult;
    py::class_<G> texts(module, "GenerationResult", "Texts of one request's sequences.");
    texts.def(py::init<>());
    read_only(texts, "m_request_id", &G::m_request_id, "m_finish_reasons", &G::m_finish_reasons,
              "perf_metrics", &G::perf_metrics, "request_metrics", &G::request_metrics);
    add_extended_metrics(texts);
    add_parsed(texts, &G::parsed);
    read_write(texts, "m_generation_ids", &G::m_generation_ids, "m_scores", &G::m_scores,
               "m_status", &G::m_status);
    texts.def("get_generation_ids", [](const G& result) { return result.m_generation_ids; })
        .def("__repr__", [](const G& result) {
            std::string text =
                "GenerationResult(m_request_id=" + std::to_string(result.m_request_id);
            for (const std::string& generated : result.m_generation_ids)
                text += ", " + std::string(py::repr(py::str(generated)));
            return text + ")";
        });
}

}  // namespace pagewheel::python
