#include "pagewheel/continuous_batching_pipeline.hpp"

#include <algorithm>
#include <future>
#include <optional>

#include "check.hpp"
#include "model/model_folder.hpp"
#include "pipelines/continuous_batching_impl.hpp"
#include "process_mark.hpp"
#include "runtime/model_runner.hpp"

namespace pagewheel {

namespace {

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

/// Hands new tokens to the streamer and passes on what it wishes.
void stream(GenerationHandle& handle, StreamerBase& streamer) {
    const GenerationOutputs outputs = handle.read();
    if (outputs.empty()) return;
    switch (streamer.write(outputs.at(0).generated_ids)) {
        case StreamingStatus::RUNNING:
            break;
        case StreamingStatus::STOP:
            handle.stop();
            break;
        case StreamingStatus::CANCEL:
            handle.cancel();
            break;
    }
}

/// Time and tokens per step, as seen by a generate() call.
class CallStatistics {
public:
    explicit CallStatistics(PerfMetrics& metrics) : m_raw(metrics.raw_metrics) {}

    void add(const StepStatistics& step) {
        m_inference += float(step.infer_time);
        if (step.num_generated_tokens == 0) return;
        const auto now = Clock::now();
        if (m_has_first)
            m_raw.m_durations.push_back(
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

/// Until one of them gets on, or for a moment.
void wait_for_any(const std::vector<GeneratedPrompt>& results) {
    constexpr std::chrono::milliseconds moment(20);
    for (const GeneratedPrompt& result : results) {
        auto lock = result.state->lock();
        if (result.state->status != GenerationStatus::RUNNING) continue;
        result.state->changed.wait_for(lock, moment);
        return;
    }
}

/// One config per prompt; a single one serves all.
std::vector<GenerationConfig> spread(const std::vector<GenerationConfig>& configs,
                                     size_t num_prompts) {
    if (configs.size() == 1) return std::vector<GenerationConfig>(num_prompts, configs.front());
    check_argument(configs.size() == num_prompts, "there are ", num_prompts, " prompts and ",
                   configs.size(), " generation configs; allowed: one for all, or one each");
    return configs;
}

GenerationConfig default_config_of(const ModelFolder& folder, const Tokenizer& tokenizer) {
    GenerationConfig config = folder.read_generation_config();
    if (config.eos_token_id == -1) config.eos_token_id = tokenizer.get_eos_token_id();
    return config;
}

/// A call's part in the streamer, if that is one which tells calls apart.
class StreamerUse {
public:
    StreamerUse(StreamerBase* streamer, const std::vector<GenerationConfig>& configs)
        : m_streamer(dynamic_cast<TextStreamer*>(streamer)) {
        if (m_streamer)
            m_streamer->begin(configs.front().stop_strings,
                              configs.front().include_stop_str_in_output);
    }
    ~StreamerUse() {
        if (m_streamer) m_streamer->release();
    }
    StreamerUse(const StreamerUse&) = delete;
    StreamerUse& operator=(const StreamerUse&) = delete;

private:
    TextStreamer* const m_streamer;
};

/// Not inside a step: it would wait for its own end.
void check_may_generate(const Inbox& inbox) {
    if (ThreadRole::is(inbox, ThreadRole::Kind::STEP))
        throw std::runtime_error(
            "an eviction policy cannot generate: the pipeline is in the step that asks it");
}

void add_metrics(PerfMetrics& all, const PerfMetrics& one) {
    all.num_generated_tokens += one.num_generated_tokens;
    all.num_prefix_cache_hit_tokens += one.num_prefix_cache_hit_tokens;
    auto& first = all.raw_metrics.m_times_to_first_token;
    const auto& own_first = one.raw_metrics.m_times_to_first_token;
    first.insert(first.end(), own_first.begin(), own_first.end());
}

}  // namespace

/// What the constructor waits for.
struct ContinuousBatchingPipeline::Impl::Loaded {
    Loaded(const std::filesystem::path& path, const Tokenizer* given, const std::string& device,
           const ov::AnyMap& properties, const SchedulerConfig& scheduler)
        : folder(path) {
        // Reading the tokenizer overlaps with compiling the model.
        auto reading = given ? std::future<Tokenizer>()
                             : std::async(std::launch::async, [&] { return Tokenizer(path); });
        runner = std::make_unique<ModelRunner>(
            folder, device, properties,
            scheduler.use_cache_eviction ? &scheduler.cache_eviction_config : nullptr);
        tokenizer.emplace(given ? *given : reading.get());
    }

    Clock::time_point begin = Clock::now();
    ModelFolder folder;
    std::unique_ptr<ModelRunner> runner;
    std::optional<Tokenizer> tokenizer;
};

ContinuousBatchingPipeline::Impl::Impl(const std::filesystem::path& model_folder,
                                       const Tokenizer* given_tokenizer,
                                       const SchedulerConfig& scheduler_config,
                                       const std::string& device, const ov::AnyMap& properties)
    : Impl(Loaded(model_folder, given_tokenizer, device, properties, scheduler_config),
           scheduler_config) {}

ContinuousBatchingPipeline::Impl::Impl(Loaded&& loaded, const SchedulerConfig& scheduler_config)
    : tokenizer(*loaded.tokenizer), default_config(default_config_of(loaded.folder, tokenizer)) {
    const ModelLimits limits{loaded.folder.read_config().max_position_embeddings};
    m_engine = std::make_shared<Engine>(std::move(loaded.runner), scheduler_config, limits,
                                        decoders_of(tokenizer));
    m_stepper = std::make_unique<Stepper>(m_engine);
    m_load_time = microseconds_since(loaded.begin) / 1000;
}

GenerationConfig ContinuousBatchingPipeline::Impl::completed(GenerationConfig config) const {
    if (config.eos_token_id != -1) return config;
    config.eos_token_id = default_config.eos_token_id;
    config.stop_token_ids.insert(default_config.stop_token_ids.begin(),
                                 default_config.stop_token_ids.end());
    return config;
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::Impl::add_request(
    uint64_t id, const std::vector<int64_t>& prompt, const GenerationConfig& config) {
    return std::make_shared<GenerationHandle>(m_engine->submit(id, prompt, completed(config)));
}

std::shared_ptr<StreamerBase> ContinuousBatchingPipeline::Impl::make_streamer(
    const StreamerVariant& streamer) const {
    if (const auto* callback = std::get_if<TextStreamer::Callback>(&streamer))
        return std::make_shared<TextStreamer>(tokenizer, *callback);
    const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
    return given ? *given : nullptr;
}

void ContinuousBatchingPipeline::Impl::set_step_hook(std::function<void()> hook) {
    const std::lock_guard lock(m_hook_mutex);
    m_step_hook.swap(hook);  // the old one is destroyed without the lock
}

std::function<void()> ContinuousBatchingPipeline::Impl::step_hook() const {
    const std::lock_guard lock(m_hook_mutex);
    return m_step_hook;
}

std::vector<GeneratedPrompt> ContinuousBatchingPipeline::Impl::run(
    const std::vector<std::vector<int64_t>>& prompts,
    const std::vector<GenerationConfig>& given_configs, const StreamerVariant& given_streamer,
    PerfMetrics& metrics) {
    const auto configs = spread(given_configs, prompts.size());
    const auto streamer = prompts.empty() ? nullptr : make_streamer(given_streamer);
    check_argument(!streamer || (prompts.size() == 1 && configs.front().num_return_sequences == 1),
                   "a streamer takes one prompt and one sequence; there are ", prompts.size(),
                   " prompts and num_return_sequences is ",
                   streamer ? configs.front().num_return_sequences : 0);
    check_argument(!streamer || !configs.front().is_beam_search(),
                   "a streamer takes tokens as they are generated; num_beams is ",
                   streamer ? configs.front().num_beams : 0,
                   ", and what beam search finds is known in the end only; allowed: 1");

    const StreamerUse use(streamer.get(), configs);
    check_may_generate(m_engine->inbox());
    CancelOnError guard(*m_engine);
    std::vector<GeneratedPrompt> results;
    for (size_t i = 0; i < prompts.size(); ++i) {
        const GenerationConfig config = completed(configs[i]);
        const auto state = m_engine->submit(std::nullopt, prompts[i], config);
        guard.add(state);
        results.push_back({prompts[i], config, state});
        metrics.num_input_tokens += prompts[i].size();
    }
    finish(results, streamer.get(), metrics);
    guard.dismiss();
    for (const GeneratedPrompt& result : results) {
        if (!result.state->error.empty()) throw std::runtime_error(result.state->error);
        add_metrics(metrics, result.state->metrics);
    }
    metrics.load_time = m_load_time;
    return results;
}

void ContinuousBatchingPipeline::Impl::finish(const std::vector<GeneratedPrompt>& results,
                                              StreamerBase* streamer, PerfMetrics& metrics) {
    Inbox& inbox = m_engine->inbox();
    const ThreadRole role(inbox, ThreadRole::Kind::CALLER);
    const bool steps_itself = ThreadRole::is(inbox, ThreadRole::Kind::SERVICE);
    const auto step_hook = this->step_hook();
    CallStatistics statistics(metrics);
    const auto any_running = [&] {
        return std::any_of(results.begin(), results.end(),
                           [](const GeneratedPrompt& result) { return is_running(*result.state); });
    };
    while (any_running()) {
        if (m_stepper->is_running() && !steps_itself)
            wait_for_any(results);
        else
            statistics.add(m_engine->step());
        if (step_hook) step_hook();
        if (!streamer) continue;
        GenerationHandle handle(results.front().state);
        stream(handle, *streamer);
    }
    statistics.finish();
    if (streamer) streamer->end();
}

std::vector<EncodedGenerationResult> ContinuousBatchingPipeline::Impl::generate(
    const std::vector<std::vector<int64_t>>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    PerfMetrics metrics;
    const auto begin = Clock::now();
    const auto generated = run(prompts, configs, streamer, metrics);
    metrics.raw_metrics.generate_durations.push_back(microseconds_since(begin));

    std::vector<EncodedGenerationResult> results;
    for (const GeneratedPrompt& one : generated) {
        EncodedGenerationResult& result = results.emplace_back();
        result.m_request_id = results.size() - 1;
        result.m_status = one.state->status;
        result.perf_metrics = metrics;
        for (const GenerationOutput& output : one.state->outputs) {
            std::vector<int64_t> tokens;
            if (one.config.echo) tokens = one.prompt;
            tokens.insert(tokens.end(), output.generated_ids.begin(), output.generated_ids.end());
            result.m_generation_ids.push_back(std::move(tokens));
            result.m_scores.push_back(output.score);
            result.m_finish_reasons.push_back(output.finish_reason);
        }
    }
    return results;
}

std::vector<GenerationResult> ContinuousBatchingPipeline::Impl::generate_text(
    const std::vector<std::string>& prompts, bool add_special_tokens,
    const std::vector<GenerationConfig>& configs, const StreamerVariant& streamer,
    PerfMetrics metrics) {
    const auto begin = Clock::now();
    RawPerfMetrics& raw = metrics.raw_metrics;
    std::vector<std::vector<int64_t>> encoded;
    for (const std::string& prompt : prompts)
        encoded.push_back(timed(raw.tokenization_durations,
                                [&] { return tokenizer.encode(prompt, add_special_tokens); }));
    const auto generated = run(encoded, configs, streamer, metrics);

    std::vector<GenerationResult> results;
    for (size_t i = 0; i < generated.size(); ++i) {
        GenerationResult& result = results.emplace_back();
        result.m_request_id = i;
        result.m_status = generated[i].state->status;
        const GenerationConfig& config = generated[i].config;
        const StopStrings stop_strings(config.stop_strings, config.include_stop_str_in_output);
        for (const GenerationOutput& output : generated[i].state->outputs) {
            const std::string text = timed(raw.detokenization_durations, [&] {
                return text_of(tokenizer, output.generated_ids, stop_strings);
            });
            result.m_generation_ids.push_back((config.echo ? prompts[i] : "") + text);
            result.m_scores.push_back(output.score);
            result.m_finish_reasons.push_back(output.finish_reason);
        }
    }
    raw.generate_durations.push_back(microseconds_since(begin));
    for (GenerationResult& result : results) result.perf_metrics = metrics;
    return results;
}

ContinuousBatchingPipeline::ContinuousBatchingPipeline(const std::filesystem::path& model_folder,
                                                       const SchedulerConfig& scheduler_config,
                                                       const std::string& device,
                                                       const ov::AnyMap& properties) {
    scheduler_config.validate();  // before anything is loaded
    m_impl =
        make_shared_in_process<Impl>(model_folder, nullptr, scheduler_config, device, properties);
}

ContinuousBatchingPipeline::ContinuousBatchingPipeline(const std::filesystem::path& model_folder,
                                                       const Tokenizer& tokenizer,
                                                       const SchedulerConfig& scheduler_config,
                                                       const std::string& device,
                                                       const ov::AnyMap& properties) {
    scheduler_config.validate();
    m_impl = make_shared_in_process<Impl>(model_folder, &tokenizer, scheduler_config, device,
                                          properties);
}

Tokenizer ContinuousBatchingPipeline::get_tokenizer() const {
    return m_impl->tokenizer;
}
GenerationConfig ContinuousBatchingPipeline::get_config() const {
    return m_impl->default_config;
}
PipelineMetrics ContinuousBatchingPipeline::get_metrics() const {
    return m_impl->engine().metrics();
}

PipelineStatistics ContinuousBatchingPipeline::get_statistics() const {
    return m_impl->engine().statistics();
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const std::vector<int64_t>& prompt, const GenerationConfig& config) {
    return m_impl->add_request(request_id, prompt, config);
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const std::string& prompt, const GenerationConfig& config) {
    return m_impl->add_request(request_id, m_impl->tokenizer.encode(prompt), config);
}

void ContinuousBatchingPipeline::step() {
    const auto impl = m_impl;  // a callback may drop the pipeline
    impl->engine().step();
}
bool ContinuousBatchingPipeline::has_non_finished_requests() const {
    return m_impl->engine().has_work();
}

void ContinuousBatchingPipeline::start() {
    m_impl->stepper().start();
}
void ContinuousBatchingPipeline::stop() {
    m_impl->stepper().stop();
}
void ContinuousBatchingPipeline::wait_for_stopped(std::chrono::milliseconds at_most) {
    Stepper::wait_for_stopped(at_most);
}

std::vector<EncodedGenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<std::vector<int64_t>>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;  // a callback may drop the pipeline, here and below
    return impl->generate(prompts, configs, streamer);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<std::string>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;
    // A template applies to a call as a whole, as the rendered text brings its own special tokens.
    const bool use_template =
        !impl->tokenizer.get_chat_template().empty() && !configs.empty() &&
        std::all_of(configs.begin(), configs.end(),
                    [](const GenerationConfig& config) { return config.apply_chat_template; });
    if (!use_template) return impl->generate_text(prompts, true, configs, streamer, {});
    std::vector<ChatHistory> histories(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) histories[i].append("user", prompts[i]);
    return generate(histories, configs, streamer);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<ChatHistory>& histories, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;
    PerfMetrics metrics;
    std::vector<std::string> prompts;
    for (const ChatHistory& history : histories)
        prompts.push_back(timed(metrics.raw_metrics.chat_template_durations, [&] {
            return impl->tokenizer.apply_chat_template(history, /*add_generation_prompt=*/true);
        }));
    return impl->generate_text(prompts, /*add_special_tokens=*/false, configs, streamer, metrics);
}

void ContinuousBatchingPipeline::set_step_hook(std::function<void()> hook) {
    m_impl->set_step_hook(std::move(hook));
}

}  // namespace pagewheel
