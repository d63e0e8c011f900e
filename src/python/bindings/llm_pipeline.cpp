#include "pagewheel/llm_pipeline.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/prefix_cache.hpp"

namespace pagewheel::python {
namespace {

/// A pipeline whose calls Ctrl-C ends.
template <class... Arguments>
std::unique_ptr<LLMPipeline> construct(const Arguments&... arguments) {
    const Unlocked unlocked;
    auto pipeline = std::make_unique<LLMPipeline>(arguments...);
    pipeline->set_step_hook(raise_pending_signals);
    return pipeline;
}

std::unique_ptr<LLMPipeline> make_llm_pipeline(const py::object& path,
                                               const std::optional<Tokenizer>& tokenizer,
                                               const std::string& device, const py::dict& config,
                                               const py::kwargs& kwargs) {
    const py::dict merged = merged_properties(config, kwargs);
    const auto folder = resolve_model(path, merged);
    const auto [properties, scheduler_config] =
        to_properties(merged, LLMPipeline::default_scheduler_config());
    if (tokenizer) return construct(folder, *tokenizer, device, properties, scheduler_config);
    auto pipeline = construct(folder, device, properties, scheduler_config);
    use_jinja(pipeline->get_tokenizer());
    return pipeline;
}

std::unique_ptr<LLMPipeline> make_llm_pipeline_in_memory(
    const py::str& model, const py::object& weights, const Tokenizer& tokenizer,
    const std::string& device, const std::optional<GenerationConfig>& generation_config,
    const py::kwargs& kwargs) {
    const std::string xml = to_text(model);
    const ov::Tensor bytes = to_byte_tensor(weights);
    const auto [properties, scheduler_config] =
        to_properties(kwargs, LLMPipeline::default_scheduler_config());
    auto pipeline = construct(xml, bytes, tokenizer, device, properties, scheduler_config);
    if (generation_config) pipeline->set_generation_config(*generation_config);
    return pipeline;
}

/// Texts for texts, tokens for tokens.
py::object generate_with_llm(LLMPipeline& pipeline, const py::object& inputs,
                             const py::object& generation_config, const py::object& streamer,
                             const py::kwargs& kwargs) {
    const auto config = to_config(generation_config, pipeline.get_generation_config(), kwargs);
    const auto sink = to_streamer(streamer);
    const auto run = [&](const auto& typed_inputs) {
        const Unlocked unlocked;
        return pipeline.generate(typed_inputs, config, sink);
    };
    if (py::isinstance<py::str>(inputs)) {
        const DecodedResults results = run(StringInputs(to_text(inputs)));
        return results.texts.size() == 1 ? py::cast(results.texts.front()) : py::cast(results);
    }
    if (py::isinstance<ChatHistory>(inputs))
        return py::cast(run(StringInputs(inputs.cast<ChatHistory>())));
    if (is_sequence(inputs) && py::len(inputs) > 0 && py::isinstance<py::str>(inputs[py::int_(0)]))
        return py::cast(run(StringInputs(to_texts(inputs))));
    if (py::hasattr(inputs, "input_ids") && py::hasattr(inputs, "attention_mask"))
        return py::cast(run(EncodedInputs(TokenizedInputs{
            to_tensor(inputs.attr("input_ids")), to_tensor(inputs.attr("attention_mask"))})));
    return py::cast(run(EncodedInputs(to_tensor(inputs))));
}

constexpr const char* generate_doc =
    R"(Generates from a str (returns str; DecodedResults if num_return_sequences is more
than 1), a sequence of str or a ChatHistory (DecodedResults), or from TokenizedInputs or token ids, [tokens] or
[batch, tokens] (EncodedResults).

generation_config: a GenerationConfig or dict; without it, the model's own. kwargs override it.
streamer: a callable that gets text and returns None, bool (True stops) or StreamingStatus, or a
StreamerBase; with several prompts or sequences an OutputStreamer. Raises ValueError for bad input; what a streamer raises passes through.)";

}  // namespace

void bind_llm_pipeline(py::module_& module) {
    py::class_<LLMPipeline> pipeline(module, "LLMPipeline", R"(One call from text to text.

models_path: a model folder or a .gguf file. device: "CPU", "GPU", ... ("AUTO" is the CPU). config and kwargs: OpenVINO's
properties for the device, and scheduler_config (without it: prefix caching is on, the rest as
SchedulerConfig has it).

Everything may be called from any thread and from callbacks, as with ContinuousBatchingPipeline. A chat takes one
turn at a time: RuntimeError while another one is generated.)");
    for (const char* name : {"generate", "__call__"})
        pipeline.def(name, &generate_with_llm, py::arg("inputs"),
                     py::arg("generation_config") = py::none(), py::arg("streamer") = py::none(),
                     generate_doc);
    pipeline
        .def(py::init([](const py::object& path, const Tokenizer& tokenizer,
                         const std::string& device, const py::dict& config,
                         const py::kwargs& kwargs) {
                 return make_llm_pipeline(path, tokenizer, device, config, kwargs);
             }),
             py::arg("models_path"), py::arg("tokenizer"), py::arg("device") = "CPU",
             py::arg("config") = py::dict())
        .def(py::init([](const py::object& path, const std::string& device, const py::dict& config,
                         const py::kwargs& kwargs) {
                 return make_llm_pipeline(path, {}, device, config, kwargs);
             }),
             py::arg("models_path"), py::arg("device") = "CPU", py::arg("config") = py::dict())
        .def(py::init(&make_llm_pipeline_in_memory), py::arg("model"), py::arg("weights"),
             py::arg("tokenizer"), py::arg("device") = "CPU",
             py::arg("generation_config") = py::none(),
             "A model that is in no file: what openvino_model.xml would hold, a text, and what the "
             ".bin would, bytes.")
        .def("start_chat", &LLMPipeline::start_chat, py::arg("system_message") = "",
             "Strings are turns of one conversation until finish_chat().")
        .def("finish_chat", &LLMPipeline::finish_chat,
             "Ends the conversation that start_chat() began and forgets it.")
        .def("get_tokenizer", &LLMPipeline::get_tokenizer, "The model's tokenizer.")
        .def("get_generation_config", &LLMPipeline::get_generation_config,
             "A copy of the defaults of generate(): the model's own at first.")
        .def(
            "set_generation_config",
            [](LLMPipeline& pipeline, const py::object& config) {
                pipeline.set_generation_config(
                    to_config(config, pipeline.get_generation_config(), {}));
            },
            py::arg("config"),
            "Sets the defaults of generate(); the model's stop tokens are filled in where it names "
            "none. Raises ValueError for what is not allowed.")
        .def("get_metrics", &LLMPipeline::get_metrics,
             "Requests and cache, under openvino_genai's names.")
        .def("get_statistics", &LLMPipeline::get_statistics,
             "Blocks, queue, and the time of steps by phase.")
        .def("get_prefix_cache", &LLMPipeline::get_prefix_cache, py::keep_alive<0, 1>(),
             "What is kept of earlier prompts.");
}

}  // namespace pagewheel::python
