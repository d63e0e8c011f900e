#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <sstream>

#include "bindings.hpp"
#include "conversions.hpp"
#include "logits_processor.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/parsers.hpp"
#include "pagewheel/scheduler_config.hpp"

namespace pagewheel::python {
namespace {

constexpr const char* generation_config_intro = R"(How one request is to be generated.

GenerationConfig(**kwargs), GenerationConfig("generation_config.json") or, for a copy, GenerationConfig(config). None is a parameter's default; what
a file has that is refused is left at its default, with a warning.

Processors of logits and filters of sampling are applied in the order of this list: biases, penalties and bans,
then logits_processors (which see), temperature, filters. Raises ValueError that names the parameter, its value and what is allowed.
)";

constexpr const char* logits_processors_doc =
    R"(Callables f(token_ids, logits) that change the logits before a token is chosen, in this order.

token_ids: the prompt and what was generated, int64 [tokens]. logits: float32 [vocabulary], to be changed in
place (also as torch.from_numpy(logits) or through DLPack, which share it); an array that is returned is taken instead. In
beam search they are log-probabilities. -inf bans a token. What is kept of either is the caller's.

Called once per token on the thread that steps, in a step: calls that need another step raise RuntimeError. An
exception, NaN or +inf ends the request with an error, and no other. A callable with a method fork() gives each
sequence (of num_return_sequences, and each beam that goes on in two ways) a callable of its own; else all share it.)";

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
    read_only<&P::section, &P::name, &P::type, &P::initial, &P::allowed, &P::help>(parameter);
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
    bind_enum<StopCriteria::EARLY, StopCriteria::HEURISTIC, StopCriteria::NEVER>(
        module, "StopCriteria", R"(When beam search ends, besides its maximum length.

EARLY: when every group of beams has as many complete sequences as beams. HEURISTIC: when besides no
beam, complete at its present length, would be among them. NEVER: when no beam can be among them any
more, at whatever length is best for it.)");
    bind_parameters(module);

    using C = GenerationConfig;
    py::class_<C> config(module, "GenerationConfig", generation_config_doc().c_str());
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    config.def_readwrite(#name, &C::name, help);
#include "pagewheel/generation_parameters.def"
    methods<&C::is_greedy_decoding, &C::is_multinomial, &C::is_beam_search,
            &C::is_assisting_generation, &C::is_prompt_lookup>(config);
    config
        .def_readwrite("parsers", &C::parsers,
                       "What DecodedResults.parsed is made with: each is applied to every text, in "
                       "this order. Of generate() alone.")
        .def_readwrite("structured_output_config", &C::structured_output_config,
                       "A StructuredOutputConfig: the shape that the text must have.")
        .def(py::init<std::filesystem::path>(), py::arg("json_path"))
        .def(py::init([](const py::kwargs& kwargs) { return to_config(py::none(), {}, kwargs); }))
        .def(py::init<const C&>(), py::arg("config"))
        .def("set_eos_token_id", &C::set_eos_token_id, py::arg("tokenizer_eos_token_id"))
        .def("update_generation_config",
             [](C& config, const py::kwargs& kwargs) { update_config(config, kwargs); })
        .def_property("logits_processors", &get_logits_processors, &set_logits_processors,
                      logits_processors_doc)
        .def("validate", &C::validate, "Raises ValueError if a parameter is out of range.");
}

void bind_scheduler_config(py::module_& module) {
    using C = SchedulerConfig;
    py::class_<C> config(module, "SchedulerConfig");
    std::ostringstream text;
    text << std::boolalpha << "How requests share one step and one cache.\n\n";
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)            \
    config.def_readwrite(#name, &C::name, help);                                      \
    text << "  " #name " (" << C().name << (*allowed ? "; allowed: " : "") << allowed \
         << "): " << help << '\n';
#include "pagewheel/scheduler_parameters.def"
    config.doc() = text.str();
    config.def_readwrite("cache_eviction_config", &C::cache_eviction_config);
    config.def(py::init<>())
        .def("validate", &C::validate, "Raises ValueError if a parameter is out of range.");
    add_to_string(config);
}

}  // namespace pagewheel::python
