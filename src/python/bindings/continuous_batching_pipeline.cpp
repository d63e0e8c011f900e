#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/operations.hpp"
#include "pagewheel/prefix_cache.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel::python {
namespace {

template <auto method>
auto with_tokens(PrefixCache& cache, const py::object& prompt, const std::string& salt) {
    const auto tokens = to_tokens(prompt);
    const Unlocked unlocked;
    return (cache.*method)(tokens, salt);
}

}  // namespace

void bind_prefix_cache(py::module_& module) {
    using C = PrefixCache;
    using WithoutLock = py::call_guard<Unlocked>;
    py::class_<C>(module, "PrefixCache", R"(What a pipeline keeps of the prompts it has seen.

Of a pipeline with enable_prefix_caching; else every method raises ValueError. From any thread.)")
        .def("num_tokens", &C::num_tokens, WithoutLock(), "Tokens that are cached.")
        .def("num_tokens_by_salt", &C::num_tokens_by_salt, WithoutLock(),
             "The same by cache_salt; \"\" stands for requests without one.")
        .def(
            "pin", &with_tokens<&C::pin>, py::arg("prompt"), py::arg("salt") = "",
            R"(Computes a prompt (token ids) if it is not cached, and keeps it until unpin(); its length.
ValueError if more than half of the blocks would be pinned, or an accepted request could not be served.)")
        .def("unpin", &with_tokens<&C::unpin>, py::arg("prompt"), py::arg("salt") = "",
             "False if exactly this was not pinned.")
        .def("clear", &C::clear, py::arg("salts") = py::none(), WithoutLock(),
             "Forgets all that is not pinned, or of that what requests with one of these salts "
             "computed.")
        .def(
            "save",
            [](const C& cache, const std::filesystem::path& path, uint64_t max_bytes,
               const std::optional<std::set<std::string>>& salts) {
                cache.save(path, {max_bytes, salts});
            },
            py::arg("path"), py::arg("max_bytes") = 0, py::arg("salts") = py::none(), WithoutLock(),
            R"(Writes all of it to a file; RuntimeError if that is not possible. Of a file of up to max_bytes
(0: no limit) the most recently used prefixes. With salts, a set, only what requests with one of these
values of cache_salt have computed; "" stands for requests without one.)")
        .def(
            "load", &C::load, py::arg("path"), WithoutLock(),
            R"(Adds what a file has, while there are free blocks; how many tokens. ValueError if it was saved
with another model, device, cache format or version of OpenVINO, RuntimeError if it is damaged.)");
}

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

namespace {

using Pipeline = ContinuousBatchingPipeline;

/// Its thread may be waiting for the interpreter, which the destructor would hold.
struct DeleteUnlocked {
    void operator()(Pipeline* pipeline) const {
        const Unlocked unlocked;
        delete pipeline;
    }
};
using PipelineHolder = std::unique_ptr<Pipeline, DeleteUnlocked>;

/// Threads that step must be gone before the interpreter is. The pipelines that ever had one.
py::object stopped_at_exit() {
    const py::object started = py::module_::import("weakref").attr("WeakSet")();
    const py::object stop = py::cpp_function([started] {
        for (const py::handle pipeline : py::list(started)) pipeline.attr("stop")();
        const Unlocked unlocked;
        Pipeline::wait_for_stopped(std::chrono::seconds(5));
    });
    py::module_::import("atexit").attr("register")(stop);
    return started;
}

PipelineHolder make_batching_pipeline(const py::object& path,
                                      const std::optional<Tokenizer>& tokenizer,
                                      const SchedulerConfig& scheduler_config,
                                      const std::string& device, const py::dict& merged) {
    const auto folder = resolve_model(path, merged);
    const auto [map, unused] = to_properties(merged);
    PipelineHolder pipeline;
    {
        const Unlocked unlocked;
        pipeline.reset(tokenizer ? new Pipeline(folder, *tokenizer, scheduler_config, device, map)
                                 : new Pipeline(folder, scheduler_config, device, map));
    }
    if (!tokenizer) use_jinja(pipeline->get_tokenizer());
    pipeline->set_step_hook(raise_pending_signals);
    return pipeline;
}

std::vector<GenerationConfig> to_configs(const Pipeline& pipeline, const py::object& config) {
    std::vector<GenerationConfig> configs;
    if (!is_sequence(config)) return {to_config(config, pipeline.get_config(), {})};
    for (const py::handle& one : config)
        configs.push_back(to_config(one, pipeline.get_config(), {}));
    return configs;
}

/// Prompts are a str, or a sequence of str, of ChatHistory, or of token ids.
py::object generate_in_batch(Pipeline& pipeline, const py::object& prompts,
                             const py::object& generation_config, const py::object& streamer) {
    const auto configs = to_configs(pipeline, generation_config);
    const auto sink = to_streamer(streamer);
    const auto run = [&](auto&& inputs) {
        const Unlocked unlocked;
        return pipeline.generate(inputs, configs, sink);
    };
    if (py::isinstance<py::str>(prompts))
        return py::cast(run(std::vector<std::string>{to_text(prompts)}));
    if (!is_sequence(prompts) || py::len(prompts) == 0)
        throw py::type_error(
            "prompts must be a str or a sequence (not empty) of str, ChatHistory or token ids");
    const py::object first = prompts[py::int_(0)];
    if (py::isinstance<py::str>(first)) return py::cast(run(to_texts(prompts)));
    if (py::isinstance<ChatHistory>(first))
        return py::cast(run(prompts.cast<std::vector<ChatHistory>>()));
    return py::cast(run(to_token_rows(prompts)));
}

std::shared_ptr<GenerationHandle> add_request(Pipeline& pipeline, uint64_t request_id,
                                              const py::object& prompt,
                                              const py::object& generation_config) {
    const auto config = to_config(generation_config, pipeline.get_config(), {});
    const auto add = [&](const auto& text_or_tokens) {
        const Unlocked unlocked;
        return pipeline.add_request(request_id, text_or_tokens, config);
    };
    return py::isinstance<py::str>(prompt) ? add(to_text(prompt)) : add(to_tokens(prompt));
}

}  // namespace

void bind_continuous_batching_pipeline(py::module_& module) {
    py::class_<DraftModel>(module, "DraftModel", "What draft_model() gives.");
    module.def(
        "draft_model",
        [](const py::object& path, const std::string& device, const py::kwargs& properties) {
            if (properties.contains("scheduler_config"))
                throw InvalidArgument(
                    "scheduler_config is a property of a draft model; allowed: the pipeline's",
                    ErrorCode::invalid_parameter, "scheduler_config");
            return DraftModel{resolve_model(path), device, to_properties(properties).first};
        },
        py::arg("models_path"), py::arg("device") = "",
        R"(A smaller model, or a head of EAGLE-3, that drafts tokens for a pipeline: its property draft_model.

models_path: as a pipeline takes it; a model, or a head that was made for the pipeline's. device and properties: without them, the pipeline's.)");

    using M = PipelineMetrics;
    py::class_<M> metrics(module, "PipelineMetrics",
                          "State of the pipeline after the latest step.");
    metrics.def(py::init<>());
    read_only<&M::requests, &M::scheduled_requests, &M::cache_usage, &M::max_cache_usage,
              &M::avg_cache_usage, &M::cache_size_in_bytes, &M::kv_cache_size_in_bytes,
              &M::preemptions, &M::prompt_tokens, &M::prefix_cache_hit_tokens,
              &M::prefix_cache_usage>(metrics);
    metrics.def_property_readonly(
        "la_peak_pool_blocks", [](const M&) { return 0; },
        "Blocks of linear attention: none, as no model has it.");

    py::class_<Pipeline, PipelineHolder> pipeline(module, "ContinuousBatchingPipeline",
                                                  R"(Many requests in one batch, token by token.

models_path: a model folder or a .gguf file. device: "CPU", "GPU", ... ("AUTO" is the CPU). properties: OpenVINO's for the
device, e.g. {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}, and
attention_backend: "native" (pagewheel's own op, CPU only), "openvino" or "auto" (native on CPU where it serves
every layer).
linear_backend: "native" (pagewheel's own int4 and int8 MatMuls, CPU only), "openvino" or "auto" (native on CPU
unless f32 inference is asked for).
activation_precision: what native MatMuls round activations to: "int8", "int16", "bf16" (where it is fast; few
rows get int16) or "auto" (int16 for few rows, bf16 or int8 for many).
batch_invariant: True makes an answer's bits independent of what else is in the batch, of prefill chunks and of what was
cached; long prompts take several times as long. Refused with cache eviction, f32 inference and layers that stay with
OpenVINO.
fast_prefill: True (default; CPU only) computes of a prompt what the cache does not need only for rows whose logits are
asked for: most of the last layer, and layers at the end that read others' caches.

Everything may be called from any thread. Steps are made one at a time: by whoever calls step() or
generate(), or, after start(), by a thread of the pipeline's own; `async for outputs in handle` then
gives tokens as they come. Everything may be called from callbacks too; in an eviction policy, which runs inside
a step, what would need another one raises RuntimeError. So does, in a child that os.fork() made, what needs the
threads or locks of its parent.)");
    pipeline
        .def(py::init([](const py::object& path, const SchedulerConfig& scheduler_config,
                         const std::string& device, const py::dict& properties,
                         const py::dict& tokenizer_properties, const py::kwargs& kwargs) {
                 const py::dict merged = merged_properties(properties, kwargs);
                 std::optional<Tokenizer> tokenizer;
                 if (!tokenizer_properties.empty())
                     tokenizer = make_tokenizer(path, tokenizer_properties);
                 return make_batching_pipeline(path, tokenizer, scheduler_config, device, merged);
             }),
             py::arg("models_path"), py::arg("scheduler_config"), py::arg("device") = "CPU",
             py::arg("properties") = py::dict(), py::arg("tokenizer_properties") = py::dict())
        .def(py::init([](const py::object& path, const Tokenizer& tokenizer,
                         const SchedulerConfig& scheduler_config, const std::string& device,
                         const py::kwargs& kwargs) {
                 return make_batching_pipeline(path, tokenizer, scheduler_config, device, kwargs);
             }),
             py::arg("models_path"), py::arg("tokenizer"), py::arg("scheduler_config"),
             py::arg("device") = "CPU")
        .def(
            "add_request", &add_request, py::arg("request_id"), py::arg("prompt"),
            py::arg("generation_config") = py::none(),
            R"(Queues a request: a str, encoded as it is, or token ids (openvino.Tensor, numpy array, list).
Raises ValueError for an empty prompt, one that does not fit, a request_id in use or a bad config,
QueueFullError if max_queue requests wait, PipelineFailedError once the pipeline has failed.)")
        .def("add_request", &add_request, py::arg("request_id"), py::arg("input_ids"),
             py::arg("generation_config") = py::none())
        .def("step", &Pipeline::step, py::call_guard<Unlocked>(),
             "Computes one batch: every running sequence's next token, and prefill chunks.")
        .def(
            "start",
            [started = stopped_at_exit()](const py::object& self) {
                self.cast<Pipeline&>().start();
                started.attr("add")(self);
            },
            "A thread of the pipeline's own steps from now on, whenever there are requests.")
        .def("stop", &Pipeline::stop, py::call_guard<Unlocked>(),
             "That thread ends, after the step under way (in a callback that it makes, or in an "
             "eviction policy: without waiting for that); requests stay as they are.")
        .def(
            "generate", &generate_in_batch, py::arg("prompts"),
            py::arg("generation_config") = py::none(), py::arg("streamer") = py::none(),
            R"(Generates for a str, or a sequence of str, ChatHistory or token ids; one config for all or one each.
An OutputStreamer takes all prompts and sequences, another streamer a single one. If anything raises, the call's requests are cancelled.)")
        .def("start_chat", &Pipeline::start_chat, py::arg("system_message") = "",
             "Texts are turns of one conversation until finish_chat().")
        .def("finish_chat", &Pipeline::finish_chat,
             "Ends the conversation that start_chat() began and forgets it.")
        .def(
            "get_cache_view", &Pipeline::get_cache_view, py::call_guard<Unlocked>(),
            py::arg("max_sequences") = 256, py::arg("evicted_request") = py::none(),
            R"(What the cache holds between two steps, and for whom: a CacheView of at most max_sequences sequences.

evicted_request is the request_id whose kept tokens are told (of its first sequence); without it that of which most was evicted. Waits for the step under way; raises from within it (eviction policies, logits processors).)")
        .def("get_prefix_cache", &Pipeline::get_prefix_cache, py::keep_alive<0, 1>());
    methods<&Pipeline::get_tokenizer, &Pipeline::get_config, &Pipeline::get_metrics,
            &Pipeline::get_statistics, &Pipeline::has_non_finished_requests>(pipeline);
    for (const char* prompts : {"prompt", "input_ids", "histories"})
        pipeline.def("generate", &generate_in_batch, py::arg(prompts),
                     py::arg("generation_config") = py::none(), py::arg("streamer") = py::none());
}

}  // namespace pagewheel::python
