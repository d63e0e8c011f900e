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

/// A class of results with what all of them have.
template <class Results>
py::class_<Results> bind_generated(py::module_& module, const char* name, const char* doc) {
    py::class_<Results> bound(module, name, doc);
    read_only<&Results::perf_metrics, &Results::request_metrics>(bound);
    bound.def_property_readonly(
        "extended_perf_metrics",
        [](const Results& results) {
            const auto& metrics = results.extended_perf_metrics;
            return metrics ? py::cast(*metrics) : py::none();
        },
        "Metrics of both models; None without a draft model.");
    return bound;
}

template <class Metrics, class Bound>
void add_sums(Bound& bound) {
    bound
        .def(
            "__add__",
            [](Metrics self, const Metrics& other) {
                self += other;
                return self;
            },
            py::arg("metrics"))
        .def(
            "__iadd__",
            [](Metrics& self, const Metrics& other) -> Metrics& {
                self += other;
                return self;
            },
            py::arg("right"));
}

/// The property `parsed`, for messages in JSON.
template <class Results>
void add_parsed(py::class_<Results>& bound) {
    bound.def_property_readonly(
        "parsed",
        [](const Results& results) {
            py::list messages;
            for (const std::string& message : results.parsed) messages.append(from_json(message));
            return messages;
        },
        "A message for each text, as GenerationConfig.parsers or a TextParserStreamer made it; "
        "empty without them.");
}

}  // namespace

void bind_results(py::module_& module) {
    using E = EncodedResults;
    auto encoded =
        bind_generated<E>(module, "EncodedResults",
                          "Tokens per prompt and sequence, prompts in the order they were given.");
    read_only<&E::tokens, &E::scores, &E::finish_reasons>(encoded);

    using D = DecodedResults;
    auto decoded =
        bind_generated<D>(module, "DecodedResults",
                          "Texts per prompt and sequence, prompts in the order they were given.");
    decoded.def(py::init<>()).def("__str__", &D::to_string);
    read_only<&D::texts, &D::scores, &D::finish_reasons>(decoded);
    add_parsed(decoded);

    using T = EncodedGenerationResult;
    auto tokens =
        bind_generated<T>(module, "EncodedGenerationResult", "Tokens of one request's sequences.");
    tokens.def(py::init<>()).def_readonly("m_request_id", &T::m_request_id);
    tokens.def_readonly("finish_reasons", &T::m_finish_reasons);
    read_write<&T::m_generation_ids, &T::m_scores, &T::m_finish_reasons, &T::m_status>(tokens);

    using G = GenerationResult;
    auto texts = bind_generated<G>(module, "GenerationResult", "Texts of one request's sequences.");
    read_only<&G::m_request_id, &G::m_finish_reasons>(texts);
    read_write<&G::m_generation_ids, &G::m_scores, &G::m_status>(texts);
    add_parsed(texts);
    texts.def(py::init<>())
        .def("get_generation_ids", &G::get_generation_ids)
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
    read_only<&S::mean, &S::std, &S::min, &S::max>(summary);

    using R = RawPerfMetrics;
    py::class_<R> raw(module, "RawPerfMetrics", "Samples in microseconds, before any statistics.");
    raw.def(py::init<>());
    read_only<&R::generate_durations, &R::tokenization_durations, &R::detokenization_durations,
              &R::chat_template_durations, &R::m_times_to_first_token, &R::m_new_token_times,
              &R::token_infer_durations, &R::m_batch_sizes, &R::m_durations,
              &R::inference_durations, &R::sampling_durations, &R::queue_durations,
              &R::grammar_compile_times>(raw);

    using P = PerfMetrics;
    py::class_<P> metrics(
        module, "PerfMetrics",
        "Statistics in milliseconds (throughput: tokens per second). Sums join samples.");
    metrics.def(py::init<>())
        .def_readonly("raw_metrics", &P::raw_metrics)
        .def("get_num_prefix_cache_hit_tokens", &P::get_num_prefix_cache_hit_tokens,
             "Of the input tokens, those that were found in the prefix cache.")
        .def("get_num_drafted_tokens", &P::get_num_drafted_tokens,
             "Tokens that were guessed, and checked by the model.")
        .def("get_num_accepted_tokens", &P::get_num_accepted_tokens,
             "Of them, those that were right: each saved a step.")
        .def("get_ttft", &P::get_ttft, "Time to first token.")
        .def("get_tpot", &P::get_tpot, "Time per output token after the first.")
        .def("get_ipot", &P::get_ipot, "Inference time per step that gave tokens.")
        .def("get_queue_duration", &P::get_queue_duration,
             "From a request's arrival to its first step.");
    add_sums<P>(metrics);
    methods<&P::get_load_time, &P::get_num_generated_tokens, &P::get_num_input_tokens,
            &P::get_throughput, &P::get_generate_duration, &P::get_inference_duration,
            &P::get_tokenization_duration, &P::get_detokenization_duration,
            &P::get_chat_template_duration, &P::get_sampling_duration, &P::get_grammar_compile_time,
            &P::get_grammar_compiler_init_times>(metrics);

    using S1 = SDPerfMetrics;
    py::class_<S1, P> one(module, "SDPerfMetrics",
                          "Metrics of one of two models by its steps, the first of which gave the "
                          "first token.");
    one.def("get_ttst", &S1::get_ttst, "Time of the second step.")
        .def("get_latency", &S1::get_latency, "Time of a step from the third on.")
        .def("get_tpot", &S1::get_tpot, "Time per token from the third step on.");
    methods<&S1::get_throughput>(one);
    add_sums<S1>(one);

    using S2 = SDPerModelsPerfMetrics;
    py::class_<S2, S1> both(
        module, "SDPerModelsPerfMetrics",
        "Metrics of a call of a pipeline with a draft model. Rates are NaN where there is nothing "
        "to divide by.");
    read_only<&S2::main_model_metrics, &S2::draft_model_metrics>(both);
    both.def("get_num_draft_tokens", &S2::get_num_draft_tokens,
             "Drafts that the model has checked.")
        .def("get_num_draft_processed_tokens", &S2::get_num_draft_processed_tokens,
             "All that the draft model has guessed.");
    methods<&S2::get_num_rejected_tokens, &S2::get_draft_acceptance_rate,
            &S2::get_draft_processed_to_candidate_ratio,
            &S2::get_draft_to_main_inference_duration_ratio>(both);
    add_sums<S2>(both);
}

void bind_statistics(py::module_& module) {
    using T = StepStatistics;
    py::class_<T> step(module, "StepStatistics",
                       "Of one step, or summed over many; times in microseconds.");
    read_only<&T::num_sequences, &T::num_tokens, &T::num_generated_tokens, &T::num_drafted_tokens,
              &T::num_computed_drafts, &T::num_draft_steps, &T::draft_time, &T::num_accepted_tokens,
              &T::schedule_time, &T::fill_time, &T::infer_time, &T::sampling_time, &T::text_time>(
        step);

    using P = PipelineStatistics;
    py::class_<P> pipeline(module, "PipelineStatistics",
                           R"(State after the latest step, and sums since the pipeline was made.

Blocks of the KV cache: used (held by running sequences) + cached (kept for prefixes) + free = all.)");
    read_only<&P::num_blocks, &P::num_used_blocks, &P::num_cached_blocks, &P::num_free_blocks,
              &P::max_used_blocks, &P::mean_used_blocks, &P::num_prefix_blocks, &P::num_checkpoints,
              &P::block_size, &P::block_bytes, &P::draft_cache_bytes, &P::num_requests,
              &P::num_queued, &P::num_running, &P::num_preempted, &P::latest_step, &P::all_steps,
              &P::num_steps, &P::num_preemptions, &P::num_prompt_tokens,
              &P::num_prefix_cache_hit_tokens, &P::num_evicted_tokens>(pipeline);
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
    bind_enum<BlockState::FREE, BlockState::USED, BlockState::SHARED, BlockState::CACHED,
              BlockState::PINNED>(
        module, "BlockState",
        "USED is held by one sequence, SHARED by several, CACHED by none and kept "
        "for a prefix that may come again; PINNED is the same and stays.");
    bind_enum<SequenceStatus::WAITING, SequenceStatus::PREFILLING, SequenceStatus::DECODING,
              SequenceStatus::PREEMPTED>(
        module, "SequenceStatus",
        "WAITING has no blocks yet; PREEMPTED had some and is to have some "
        "again.");

    using S = SequenceView;
    py::class_<S> sequence(module, "SequenceView", R"(One sequence of a request, in a CacheView.

request_id is None for requests of generate(). num_tokens counts prompt and answer, num_computed
those of them whose keys are in the cache or were evicted. blocks (int32) are in the order of its
tokens; layers that evict reorder them.)");
    read_only<&S::request_id, &S::index, &S::cache_salt, &S::state, &S::priority,
              &S::num_prompt_tokens, &S::num_tokens, &S::num_computed, &S::num_evicted,
              &S::num_prefix_hits>(sequence);
    sequence.def_property_readonly("blocks", [](const S& self) { return copy_of(self.blocks); });

    using K = KeptTokens;
    py::class_<K> kept(
        module, "KeptTokens",
        R"(What eviction has left of one sequence of a CacheView, whose place in `sequences` is `sequence`.

kept and rotated are [num_layers, num_bins]: of each range of tokens_per_bin tokens, how many the
layer still holds (uint32), and by how many positions their keys are rotated at read, on average
(int32; an attention that rotates keys in the cache has none).)");
    read_only<&K::sequence, &K::num_layers, &K::num_bins, &K::tokens_per_bin>(kept);
    kept.def_property_readonly("kept", [](const K& self) { return by_layer(self, self.kept); });
    kept.def_property_readonly("rotated",
                               [](const K& self) { return by_layer(self, self.rotated); });

    using V = CacheView;
    py::class_<V> view(module, "CacheView", R"(What the KV cache holds, and for whom, at one moment.

block_states (uint8) are values of BlockState. num_sequences counts all; sequences has at most as
many as were asked for, those with blocks first. kept is None where nothing was evicted.)");
    read_only<&V::num_steps, &V::block_size, &V::num_sequences, &V::sequences, &V::kept>(view);
    view.def_property_readonly("block_states", &states_of);
}

}  // namespace pagewheel::python
