// A call of generate(): its requests, what it streams, and its results.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "pipelines/pipeline_impl.hpp"
#include "text/tokenizer_impl.hpp"

namespace pagewheel {

/// What generate() made of one prompt, before it becomes tokens or text for the caller.
struct ContinuousBatchingPipeline::Impl::GeneratedPrompt {
    std::vector<int64_t> prompt;
    bool echo;
    std::shared_ptr<GenerationHandle::State> state;
};

namespace {

/// The streamer that tells sequences apart, if it is one.
OutputStreamer* as_output_streamer(const StreamerVariant& streamer) {
    const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
    return given ? dynamic_cast<OutputStreamer*>(given->get()) : nullptr;
}

/// The text of the prompt as it stands before the text of what was generated: with the space
/// between them, if there is one.
std::string echoed(const Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                   const std::vector<int64_t>& generated) {
    std::vector<int64_t> both = prompt;
    append(both, generated);
    const std::string all = tokenizer.decode(both), own = tokenizer.decode(generated);
    const bool fits =
        all.size() >= own.size() && all.compare(all.size() - own.size(), own.size(), own) == 0;
    return fits ? all.substr(0, all.size() - own.size()) : tokenizer.decode(prompt);
}

/// Hands what is new of a request to a streamer. The prompt comes before it where it is echoed, but
/// not for an OutputStreamer.
class Stream {
public:
    /// `index` is the prompt's in its call, `echoed_prompt` what is to come before the output.
    Stream(const StreamerVariant& streamer, const Tokenizer& tokenizer,
           std::shared_ptr<GenerationHandle::State> state, size_t index,
           std::vector<int64_t> echoed_prompt)
        : m_streamer(streamer),
          m_tokenizer(tokenizer),
          m_index(index),
          m_state(std::move(state)),
          m_prompt(std::move(echoed_prompt)) {}

    void write_new_output() {
        if (m_is_over) return;
        GenerationHandle handle(m_state);
        switch (write(handle)) {
            case StreamingStatus::RUNNING:
                break;
            case StreamingStatus::STOP:
                handle.stop(GenerationFinishReason::STOP);
                break;
            case StreamingStatus::TOOL_CALL_STOP:
                handle.stop(GenerationFinishReason::TOOL_CALL);
                break;
            case StreamingStatus::CANCEL:
                handle.cancel();
                break;
        }
    }

private:
    /// Writes to whatever the streamer is, and returns its answer.
    StreamingStatus write(GenerationHandle& handle) {
        if (OutputStreamer* streamer = as_output_streamer(m_streamer))
            return write_outputs(handle, *streamer);
        const auto* callback = std::get_if<TextStreamer::Callback>(&m_streamer);
        const GenerationOutputs outputs = handle.read_available(/*with_text=*/callback != nullptr);
        if (outputs.empty()) return StreamingStatus::RUNNING;
        const GenerationOutput& output = outputs.at(0);
        std::vector<int64_t> tokens = std::exchange(m_prompt, {});
        if (callback) {
            const std::string before =
                tokens.empty() ? "" : echoed(m_tokenizer, tokens, output.generated_ids);
            const std::string text = before + output.text;
            return text.empty() ? StreamingStatus::RUNNING : (*callback)(text);
        }
        append(tokens, output.generated_ids);
        return tokens.empty() ? StreamingStatus::RUNNING
                              : std::get<std::shared_ptr<StreamerBase>>(m_streamer)->write(tokens);
    }
    StreamingStatus write_outputs(GenerationHandle& handle, OutputStreamer& streamer) {
        for (auto& [sequence, output] : handle.read_available(/*with_text=*/true)) {
            const StreamingStatus answer =
                streamer.write_output({m_index, size_t(sequence), std::move(output)});
            if (answer == StreamingStatus::RUNNING) continue;
            m_is_over = true;
            return answer;
        }
        return StreamingStatus::RUNNING;
    }

    const StreamerVariant& m_streamer;
    const Tokenizer& m_tokenizer;
    const size_t m_index;
    const std::shared_ptr<GenerationHandle::State> m_state;
    std::vector<int64_t> m_prompt;  // that is still to be echoed
    bool m_is_over = false;         // an OutputStreamer wants no more
};

/// Cancels what a call has submitted, unless it ends well.
class CancelOnError {
public:
    explicit CancelOnError(Engine& engine) : m_engine(engine) {}
    ~CancelOnError() {
        if (m_states.empty()) return;
        try {
            for (const auto& state : m_states) GenerationHandle(state).cancel();
            m_engine.step();  // frees their blocks now
        } catch (...) {       // the exception on its way matters more; the next step will do
        }
    }
    void add(std::shared_ptr<GenerationHandle::State> state) {
        m_states.push_back(std::move(state));
    }
    void dismiss() { m_states.clear(); }

private:
    Engine& m_engine;
    std::vector<std::shared_ptr<GenerationHandle::State>> m_states;
};

bool is_running(const GenerationHandle::State& state) {
    const auto lock = state.lock();
    return state.status == GenerationStatus::RUNNING;
}

bool is_set(const StreamerVariant& streamer) {
    if (const auto* callback = std::get_if<TextStreamer::Callback>(&streamer))
        return bool(*callback);
    const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
    return given && *given;
}

/// Time and tokens per step, as seen by a generate() call.
class CallStatistics {
public:
    explicit CallStatistics(PerfMetrics& metrics) : m_raw(metrics.raw_metrics) {}

    void add(const StepStatistics& step) {
        m_inference += float(step.infer_time);
        // What one step drafts is counted as a whole: its draft steps get equal parts.
        const size_t count = step.num_draft_steps, drafts = step.num_computed_drafts;
        m_raw.draft_durations.insert(m_raw.draft_durations.end(), count,
                                     float(step.draft_time / double(count)));
        for (size_t i = 0; i < count; ++i)
            m_raw.draft_batch_sizes.push_back(drafts * (i + 1) / count - drafts * i / count);
        if (step.num_generated_tokens == 0) return;
        const auto now = Clock::now();
        if (m_has_first)
            m_raw.m_durations.insert(
                m_raw.m_durations.end(), step.num_generated_tokens,
                std::chrono::duration<float, std::micro>(now - m_latest).count() /
                    float(step.num_generated_tokens));
        m_has_first = true;
        m_latest = now;
        m_raw.m_new_token_times.push_back(
            std::chrono::duration<double, std::micro>(now.time_since_epoch()).count());
        m_raw.m_batch_sizes.push_back(step.num_generated_tokens);
        m_raw.token_infer_durations.push_back(float(step.infer_time));
        m_raw.sampling_durations.push_back(float(step.sampling_time));
    }
    void finish() { m_raw.inference_durations.push_back(m_inference); }

private:
    RawPerfMetrics& m_raw;
    float m_inference = 0;
    bool m_has_first = false;
    Clock::time_point m_latest;
};

/// Waits until one of them gets on, or for a moment.
template <class Prompt>
void wait_for_any(const std::vector<Prompt>& results) {
    constexpr std::chrono::milliseconds moment(20);
    for (const auto& result : results) {
        auto lock = result.state->lock();
        if (result.state->status != GenerationStatus::RUNNING) continue;
        result.state->changed.wait_for(lock, moment);
        return;
    }
}

/// A call's part in the streamer, if that is one which tells calls apart.
class StreamerUse {
public:
    StreamerUse(const StreamerVariant& streamer, const std::vector<GenerationConfig>& configs) {
        const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
        if (given && !configs.empty()) m_streamer = dynamic_cast<TextStreamer*>(given->get());
        if (m_streamer) m_streamer->begin(configs.front());
    }
    ~StreamerUse() {
        if (m_streamer) m_streamer->release();
    }
    StreamerUse(const StreamerUse&) = delete;
    StreamerUse& operator=(const StreamerUse&) = delete;

private:
    TextStreamer* m_streamer = nullptr;
};

/// Throws inside a step, which would wait for its own end.
void check_may_generate(const RequestQueue& queue) {
    if (ThreadRole::is(queue, ThreadRole::Kind::STEP))
        throw Error(
            "an eviction policy or a logits processor cannot generate: the pipeline is in the step "
            "that asks it",
            ErrorCode::invalid_state);
}

void add_metrics(PerfMetrics& all, const PerfMetrics& one) {
    all.num_generated_tokens += one.num_generated_tokens;
    all.num_prefix_cache_hit_tokens += one.num_prefix_cache_hit_tokens;
    all.num_drafted_tokens += one.num_drafted_tokens;
    all.num_accepted_tokens += one.num_accepted_tokens;
    append(all.raw_metrics.m_times_to_first_token, one.raw_metrics.m_times_to_first_token);
    append(all.raw_metrics.queue_durations, one.raw_metrics.queue_durations);
    append(all.raw_metrics.grammar_compile_times, one.raw_metrics.grammar_compile_times);
}

void check_streams(const StreamerVariant& streamer, const std::vector<GenerationConfig>& configs,
                   size_t num_prompts) {
    for (const GenerationConfig& config : configs) {
        check_argument(
            as_output_streamer(streamer) || (num_prompts == 1 && config.num_return_sequences == 1),
            ParameterName("streamer", "a streamer"),
            " takes one prompt and one sequence; there are ", num_prompts,
            " prompts and num_return_sequences is ", config.num_return_sequences,
            "; an OutputStreamer takes them all");
        check_argument(!config.is_beam_search(), ParameterName("streamer", "a streamer"),
                       " takes tokens as they are generated; num_beams is ", config.num_beams,
                       ", and what beam search finds is known in the end only; allowed: 1");
    }
}

}  // namespace

void check_configs(const std::vector<GenerationConfig>& configs, size_t num_prompts) {
    check_argument(configs.size() == 1 || configs.size() == num_prompts,
                   ParameterName("generation_config", ""), "there are ", num_prompts,
                   " prompts and ", configs.size(),
                   " generation configs; allowed: one for all, or one each");
}

auto ContinuousBatchingPipeline::Impl::run(const std::vector<std::vector<int64_t>>& prompts,
                                           const std::vector<GenerationConfig>& configs,
                                           const StreamerVariant& streamer, PerfMetrics& metrics)
    -> std::vector<GeneratedPrompt> {
    check_configs(configs, prompts.size());
    if (is_set(streamer)) check_streams(streamer, configs, prompts.size());
    const StreamerUse use(streamer, configs);
    check_may_generate(m_engine->request_queue());
    CancelOnError guard(*m_engine);
    std::vector<GeneratedPrompt> results;
    for (size_t i = 0; i < prompts.size(); ++i) {
        const GenerationConfig& config = config_of(configs, i);
        const auto state = submit(std::nullopt, prompts[i], config);
        guard.add(state);
        results.push_back({prompts[i], config.echo, state});
        metrics.num_input_tokens += prompts[i].size();
    }
    finish(results, streamer, metrics);
    guard.dismiss();
    for (const GeneratedPrompt& result : results) {
        {
            const auto lock = result.state->lock();
            result.state->check_error();
        }
        add_metrics(metrics, result.state->metrics);
    }
    metrics.load_time = m_load_time;
    if (!metrics.raw_metrics.grammar_compile_times.empty())
        metrics.grammar_compiler_init_times["llguidance"] =
            grammar_compiler(tokenizer)->preparation_time().count();
    return results;
}

void ContinuousBatchingPipeline::Impl::finish(const std::vector<GeneratedPrompt>& results,
                                              const StreamerVariant& streamer,
                                              PerfMetrics& metrics) {
    RequestQueue& queue = m_engine->request_queue();
    const ThreadRole role(queue, ThreadRole::Kind::CALLER);
    const bool steps_itself = ThreadRole::is(queue, ThreadRole::Kind::SERVICE);
    const auto step_hook = this->step_hook();
    std::vector<Stream> streams;
    for (size_t i = 0; is_set(streamer) && i < results.size(); ++i)
        streams.emplace_back(streamer, tokenizer, results[i].state, i,
                             results[i].echo ? results[i].prompt : std::vector<int64_t>());
    const auto write_new_output = [&] {
        for (Stream& stream : streams) stream.write_new_output();
    };
    CallStatistics statistics(metrics);
    const auto any_running = [&] {
        return std::any_of(results.begin(), results.end(),
                           [](const GeneratedPrompt& result) { return is_running(*result.state); });
    };
    while (any_running()) {
        if (m_engine_thread->is_running() && !steps_itself)
            wait_for_any(results);
        else
            statistics.add(m_engine->step());
        if (step_hook) step_hook();
        write_new_output();
    }
    write_new_output();  // a thread of the pipeline's own may have ended it since
    statistics.finish();
    const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
    if (given && !streams.empty()) (*given)->end();
}

namespace {

/// What generate() gives for the prompt of that index; value_of(output) is what of an output.
template <class Result, class ValueOf>
Result make_result(size_t index, const GenerationHandle::State& state,
                   const std::vector<GenerationOutput>& outputs, const ValueOf& value_of) {
    Result result;
    result.m_request_id = index;
    result.m_status = state.status;
    result.request_metrics = state.metrics;
    for (const GenerationOutput& output : outputs) {
        result.m_generation_ids.push_back(value_of(output));
        result.m_scores.push_back(output.score);
        result.m_finish_reasons.push_back(output.finish_reason);
    }
    return result;
}

}  // namespace

std::vector<EncodedGenerationResult> ContinuousBatchingPipeline::Impl::generate(
    const std::vector<std::vector<int64_t>>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    PerfMetrics metrics;
    const auto begin = Clock::now();
    const auto generated = run(prompts, configs, streamer, metrics);
    metrics.raw_metrics.generate_durations.push_back(microseconds_since(begin));

    std::vector<EncodedGenerationResult> results;
    for (const GeneratedPrompt& one : generated) {
        const auto tokens_of = [&](const GenerationOutput& output) {
            std::vector<int64_t> tokens;
            if (one.echo) tokens = one.prompt;
            append(tokens, output.generated_ids);
            return tokens;
        };
        results.push_back(make_result<EncodedGenerationResult>(
            results.size(), *one.state, all_outputs(*one.state, /*with_text=*/false), tokens_of));
        results.back().perf_metrics = metrics;
        results.back().extended_perf_metrics = extended(metrics);
    }
    return results;
}

std::vector<GenerationResult> ContinuousBatchingPipeline::Impl::generate_text(
    const std::vector<TextPrompt>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer, PerfMetrics metrics) {
    const auto begin = Clock::now();
    RawPerfMetrics& raw = metrics.raw_metrics;
    std::vector<std::vector<int64_t>> encoded;
    for (const TextPrompt& prompt : prompts)
        encoded.push_back(timed(raw.tokenization_durations, [&] {
            return tokenizer.encode(prompt.text, prompt.add_special_tokens);
        }));
    const auto generated = run(encoded, configs, streamer, metrics);

    std::vector<GenerationResult> results;
    for (size_t i = 0; i < generated.size(); ++i) {
        const GeneratedPrompt& one = generated[i];
        const auto outputs = timed(raw.detokenization_durations,
                                   [&] { return all_outputs(*one.state, /*with_text=*/true); });
        const auto text_of = [&](const GenerationOutput& output) {
            const std::string before =
                one.echo ? echoed(tokenizer, one.prompt, output.generated_ids) : "";
            return before + output.text;
        };
        results.push_back(make_result<GenerationResult>(i, *one.state, outputs, text_of));
        results.back().parsed = parsed_outputs(config_of(configs, i), streamer, tokenizer, outputs);
    }
    raw.generate_durations.push_back(microseconds_since(begin));
    for (GenerationResult& result : results) {
        result.perf_metrics = metrics;
        result.extended_perf_metrics = extended(metrics);
    }
    return results;
}

std::shared_ptr<SDPerModelsPerfMetrics> ContinuousBatchingPipeline::Impl::extended(
    const PerfMetrics& metrics) const {
    return m_has_draft_model ? std::make_shared<SDPerModelsPerfMetrics>(metrics) : nullptr;
}

}  // namespace pagewheel
