#include "pagewheel/generation_config.hpp"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"

namespace pagewheel::python {
namespace {

constexpr const char* doc = R"(How one request is to be generated.

GenerationConfig(**kwargs) or GenerationConfig("generation_config.json"). None is a parameter's default; what
a file has that is refused is left at its default, with a warning.

When it ends:
  max_new_tokens: tokens to generate. max_length: prompt and generated tokens, without max_new_tokens.
  min_new_tokens: no stop token before that many. ignore_eos: generate past stop tokens.
  eos_token_id, stop_token_ids: tokens that end it; without them, the model's own.
  stop_strings: texts that end it, whatever the token boundaries, and with the text of special tokens in
  it. include_stop_str_in_output: the result ends with the stop string, not before it.
What comes back:
  echo: the prompt before the result. logprobs: not 0 gives log-probabilities.
  num_return_sequences: independent samples with do_sample; of beam search the best, up to num_beams.
  apply_chat_template: of a plain string given to generate().
How it is served:
  priority: higher is served first, -1000 to 1000; requests that wait gain on it.
  timeout: seconds from its submission after which the request ends with what there is; inf is never.
  cache_salt: only requests with the same salt share cached prefixes.
Penalties on logits (of beam search on log-probabilities):
  repetition_penalty (CTRL), presence_penalty and frequency_penalty (OpenAI).
  no_repeat_ngram_size: no so many tokens in a row occur twice, prompt included.
Beam search, with num_beams above 1; it comes as a whole when it is over, with its score:
  the sum of log-probabilities / length ** length_penalty.
  num_beam_groups: groups of equal size that search for themselves. diversity_penalty: subtracted
  from a token's log-probability for each beam of the groups before that chose it in the step.
  stop_criteria: StopCriteria.EARLY, HEURISTIC or NEVER.
Sampling, in this order: temperature, top_k, top_p, min_p.
  do_sample: multinomial instead of greedy. rng_seed: None gives another text every time.

Raises ValueError that names the parameter, its value and what is allowed.)";

}  // namespace

void bind_generation_config(py::module_& module) {
    py::enum_<StopCriteria>(module, "StopCriteria",
                            R"(When beam search ends, besides its maximum length.

EARLY: when every group of beams has as many complete sequences as beams. HEURISTIC: when besides no
beam, complete at its present length, would be among them. NEVER: when no beam can be among them any
more, at whatever length is best for it.)")
        .value("EARLY", StopCriteria::EARLY)
        .value("HEURISTIC", StopCriteria::HEURISTIC)
        .value("NEVER", StopCriteria::NEVER);

    using C = GenerationConfig;
    py::class_<C>(module, "GenerationConfig", doc)
        .def(py::init<std::filesystem::path>(), py::arg("json_path"))
        .def(py::init([](const py::kwargs& kwargs) { return to_config(py::none(), {}, kwargs); }))
        .def_readwrite("max_new_tokens", &C::max_new_tokens)
        .def_readwrite("max_length", &C::max_length)
        .def_readwrite("min_new_tokens", &C::min_new_tokens)
        .def_readwrite("ignore_eos", &C::ignore_eos)
        .def_readwrite("eos_token_id", &C::eos_token_id)
        .def_readwrite("stop_token_ids", &C::stop_token_ids)
        .def_readwrite("stop_strings", &C::stop_strings)
        .def_readwrite("include_stop_str_in_output", &C::include_stop_str_in_output)
        .def_readwrite("echo", &C::echo)
        .def_readwrite("logprobs", &C::logprobs)
        .def_readwrite("num_return_sequences", &C::num_return_sequences)
        .def_readwrite("priority", &C::priority)
        .def_readwrite("timeout", &C::timeout)
        .def_readwrite("cache_salt", &C::cache_salt)
        .def_readwrite("num_beams", &C::num_beams)
        .def_readwrite("num_beam_groups", &C::num_beam_groups)
        .def_readwrite("diversity_penalty", &C::diversity_penalty)
        .def_readwrite("length_penalty", &C::length_penalty)
        .def_readwrite("stop_criteria", &C::stop_criteria)
        .def_readwrite("no_repeat_ngram_size", &C::no_repeat_ngram_size)
        .def_readwrite("apply_chat_template", &C::apply_chat_template)
        .def_readwrite("repetition_penalty", &C::repetition_penalty)
        .def_readwrite("presence_penalty", &C::presence_penalty)
        .def_readwrite("frequency_penalty", &C::frequency_penalty)
        .def_readwrite("do_sample", &C::do_sample)
        .def_readwrite("temperature", &C::temperature)
        .def_readwrite("top_p", &C::top_p)
        .def_readwrite("top_k", &C::top_k)
        .def_readwrite("min_p", &C::min_p)
        .def_readwrite("rng_seed", &C::rng_seed)
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
