#include "pagewheel/generation_config.hpp"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "fields.hpp"

namespace pagewheel::python {
namespace {

constexpr const char* generation_config_intro = R"(How one request is to be generated.

GenerationConfig(**kwargs) or GenerationConfig("generation_config.json"). None is a parameter's default; what
a file has that is refused is left at its default, with a warning.

Processors of logits and filters of sampling are applied in the order of this list: penalties, temperature,
top_k, top_p, min_p. Raises ValueError that names the parameter, its value and what is allowed.
)";

/// A line for each parameter, under the titles of their sections.
std::string generation_config_doc() {
    std::string text = generation_config_intro, section;
    for (const GenerationParameter& each : generation_parameters()) {
        if (each.section != section) text += "\n" + each.section + ":\n";
        section = each.section;
        text += "  " + each.name + " (" + each.type + ", " + each.initial +
                (each.allowed.empty() ? "" : "; allowed: " + each.allowed) + "): " + each.help +
                "\n";
    }
    return text;
}

void bind_parameters(py::module_& module) {
    using P = GenerationParameter;
    py::class_<P> parameter(module, "GenerationParameter",
                            "A parameter of GenerationConfig in words; `initial` is its default.");
    read_only(parameter, "section", &P::section, "name", &P::name, "type", &P::type, "initial",
              &P::initial, "allowed", &P::allowed, "help", &P::help);
    parameter.def(
        "check",
        [](const P& self, const py::object& value) {
            py::dict given;
            given[py::str(self.name)] = value;
            self.check(to_config(py::none(), {}, given));
        },
        py::arg("value"),
        "Raises ValueError for a value that is not allowed, whatever the others.");
    module.def("generation_parameters", &generation_parameters,
               "All parameters of GenerationConfig, in the order of its documentation.");
}

}  // namespace

void bind_generation_config(py::module_& module) {
    bind_enum<StopCriteria>(module, "StopCriteria",
                            R"(When beam search ends, besides its maximum length.

EARLY: when every group of beams has as many complete sequences as beams. HEURISTIC: when besides no
beam, complete at its present length, would be among them. NEVER: when no beam can be among them any
more, at whatever length is best for it.)",
                            "EARLY", StopCriteria::EARLY, "HEURISTIC", StopCriteria::HEURISTIC,
                            "NEVER", StopCriteria::NEVER);
    bind_parameters(module);

    using C = GenerationConfig;
    py::class_<C> config(module, "GenerationConfig", generation_config_doc().c_str());
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    config.def_readwrite(#name, &C::name, help);
#include "pagewheel/generation_parameters.def"
    config.def(py::init<std::filesystem::path>(), py::arg("json_path"))
        .def(py::init([](const py::kwargs& kwargs) { return to_config(py::none(), {}, kwargs); }))
        .def("is_greedy_decoding", &C::is_greedy_decoding)
        .def("is_multinomial", &C::is_multinomial)
        .def("is_beam_search", &C::is_beam_search)
        .def("set_eos_token_id", &C::set_eos_token_id, py::arg("tokenizer_eos_token_id"))
        .def("update_generation_config",
             [](C& config, const py::kwargs& kwargs) {
                 config.update_from_json(to_config_json(kwargs));
             })
        .def("validate", &C::validate, "Raises ValueError if a parameter is out of range.");
}

}  // namespace pagewheel::python
