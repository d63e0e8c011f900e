#include "pagewheel/continuous_batching_pipeline.hpp"

#include <algorithm>
#include <future>
#include <optional>

#include "base/check.hpp"
#include "base/process_mark.hpp"
#include "model/model_folder.hpp"
#include "pipelines/continuous_batching_impl.hpp"
#include "runtime/openvino_model.hpp"

namespace pagewheel {

namespace {

GenerationConfig default_config_of(const ModelFolder& folder, const Tokenizer& tokenizer) {
    const std::filesystem::path json = folder.generation_config_json();
    GenerationConfig config;
    if (std::filesystem::exists(json)) config = GenerationConfig(json);
    if (config.eos_token_id == -1) config.eos_token_id = tokenizer.get_eos_token_id();
    return config;
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
        model =
            load_model(folder, device, properties,
                       scheduler.use_cache_eviction ? &scheduler.cache_eviction_config : nullptr);
        tokenizer.emplace(given ? *given : reading.get());
    }

    Clock::time_point begin = Clock::now();
    ModelFolder folder;
    std::unique_ptr<Model> model;
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
    EngineParts parts;
    parts.model = std::move(loaded.model);
    parts.context_length = loaded.folder.read_config().max_position_embeddings;
    parts.decoders = decoders_of(tokenizer);
    m_engine = std::make_shared<Engine>(std::move(parts), scheduler_config);
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

void ContinuousBatchingPipeline::Impl::set_step_hook(std::function<void()> hook) {
    const std::lock_guard lock(m_hook_mutex);
    m_step_hook.swap(hook);  // the old one is destroyed without the lock
}

std::function<void()> ContinuousBatchingPipeline::Impl::step_hook() const {
    const std::lock_guard lock(m_hook_mutex);
    return m_step_hook;
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
    return metrics_of(m_impl->engine().statistics());
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
