#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "pagewheel/cache_view.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/results.hpp"
#include "pagewheel/statistics.hpp"

namespace pagewheel::python {
namespace {

template <class Class>
void add_extended_metrics(Class& bound) {
    bound.def_property_readonly(
        "extended_perf_metrics", [](const py::object&) { return py::none(); },
        "None: no pipeline has metrics of two models.");
}

/// Adds the property `parsed`, for messages in JSON.
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

void bind_statistics(py::module_& module) {
    using T = StepStatistics;
    py::class_<T> step(module, "StepStatistics",
                       "Of one step, or summed over many; times in microseconds.");
    read_only(step, "num_sequences", &T::num_sequences, "num_tokens", &T::num_tokens,
              "num_generated_tokens", &T::num_generated_tokens, "schedule_time", &T::schedule_time,
              "fill_time", &T::fill_time, "infer_time", &T::infer_time, "sampling_time",
              &T::sampling_time, "text_time", &T::text_time);

    using P = PipelineStatistics;
    py::class_<P> pipeline(module, "PipelineStatistics",
                           R"(State after the latest step, and sums since the pipeline was made.

Blocks of the KV cache: used (held by running sequences) + cached (kept for prefixes) + free = all.)");
    read_only(pipeline, "num_blocks", &P::num_blocks, "num_used_blocks", &P::num_used_blocks,
              "num_cached_blocks", &P::num_cached_blocks, "num_free_blocks", &P::num_free_blocks,
              "max_used_blocks", &P::max_used_blocks, "mean_used_blocks", &P::mean_used_blocks,
              "num_prefix_blocks", &P::num_prefix_blocks, "block_size", &P::block_size,
              "block_bytes", &P::block_bytes, "num_requests", &P::num_requests, "num_queued",
              &P::num_queued, "num_running", &P::num_running, "num_preempted", &P::num_preempted,
              "latest_step", &P::latest_step, "all_steps", &P::all_steps, "num_steps",
              &P::num_steps, "num_preemptions", &P::num_preemptions, "num_prompt_tokens",
              &P::num_prompt_tokens, "num_prefix_cache_hit_tokens", &P::num_prefix_cache_hit_tokens,
              "num_evicted_tokens", &P::num_evicted_tokens);
    pipeline.def("__repr__", &P::to_string);
}

namespace {

template <class T>
py::array_t<T> copy_of(const std::vector<T>& values) {
    return py::array_t<T>(py::ssize_t(values.size()), values.data());
}

template <class T>
py::array_t<T> by_layer(const KeptTokens& self, const std::vector<T>& values) {
    return py::array_t<T>({self.num_layers, self.num_bins}, values.data());
}

py::array_t<uint8_t> states_of(const CacheView& self) {
    const auto* states = reinterpret_cast<const uint8_t*>(self.blocks.data());
    return py::array_t<uint8_t>(py::ssize_t(self.blocks.size()), states);
}

}  // namespace

void bind_cache_view(py::module_& module) {
    bind_enum<BlockState>(
        module, "BlockState",
        "USED is held by one sequence, SHARED by several, CACHED by none and kept "
        "for a prefix that may come again; PINNED is the same and stays.",
        "FREE", BlockState::FREE, "USED", BlockState::USED, "SHARED", BlockState::SHARED, "CACHED",
        BlockState::CACHED, "PINNED", BlockState::PINNED);
    bind_enum<SequenceStatus>(module, "SequenceStatus",
                              "WAITING has no blocks yet; PREEMPTED had some and is to have some "
                              "again.",
                              "WAITING", SequenceStatus::WAITING, "PREFILLING",
                              SequenceStatus::PREFILLING, "DECODING", SequenceStatus::DECODING,
                              "PREEMPTED", SequenceStatus::PREEMPTED);

    using S = SequenceView;
    py::class_<S> sequence(module, "SequenceView", R"(One sequence of a request, in a CacheView.

request_id is None for requests of generate(). num_tokens counts prompt and answer, num_computed
those of them whose keys are in the cache or were evicted. blocks (int32) are in the order of its
tokens; layers that evict reorder them.)");
    read_only(sequence, "request_id", &S::request_id, "index", &S::index, "cache_salt",
              &S::cache_salt, "state", &S::state, "priority", &S::priority, "num_prompt_tokens",
              &S::num_prompt_tokens, "num_tokens", &S::num_tokens, "num_computed", &S::num_computed,
              "num_evicted", &S::num_evicted, "num_prefix_hits", &S::num_prefix_hits);
    sequence.def_property_readonly("blocks", [](const S& self) { return copy_of(self.blocks); });

    using K = KeptTokens;
    py::class_<K> kept(
        module, "KeptTokens",
        R"(What eviction has left of one sequence of a CacheView, whose place in `sequences` is `sequence`.

kept and rotated are [num_layers, num_bins]: of each range of tokens_per_bin tokens, how many the
layer still holds (uint32), and by how many positions their keys are rotated at read, on average
(int32; an attention that rotates keys in the cache has none).)");
    read_only(kept, "sequence", &K::sequence, "num_layers", &K::num_layers, "num_bins",
              &K::num_bins, "tokens_per_bin", &K::tokens_per_bin);
    kept.def_property_readonly("kept", [](const K& self) { return by_layer(self, self.kept); });
    kept.def_property_readonly("rotated",
                               [](const K& self) { return by_layer(self, self.rotated); });

    using V = CacheView;
    py::class_<V> view(module, "CacheView", R"(What the KV cache holds, and for whom, at one moment.

block_states (uint8) are values of BlockState. num_sequences counts all; sequences has at most as
many as were asked for, those with blocks first. kept is None where nothing was evicted.)");
    read_only(view, "num_steps", &V::num_steps, "block_size", &V::block_size, "num_sequences",
              &V::num_sequences, "sequences", &V::sequences, "kept", &V::kept);
    view.def_property_readonly("block_states", &states_of);
}

}  // namespace pagewheel::python
