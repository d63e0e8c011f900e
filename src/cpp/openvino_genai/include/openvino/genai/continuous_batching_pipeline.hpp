// Many requests in one batch, token by token.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "openvino/genai/generation_config.hpp"
#include "openvino/genai/generation_handle.hpp"
#include "openvino/genai/llm_pipeline.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/genai/scheduler_config.hpp"
#include "openvino/genai/tokenizer.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"

namespace pagewheel::openvino_genai {

/// pagewheel::ContinuousBatchingPipeline, but what is drawn at random is the same at each call.
class ContinuousBatchingPipeline : public pagewheel::ContinuousBatchingPipeline {
    using Pipeline = pagewheel::ContinuousBatchingPipeline;

public:
    ContinuousBatchingPipeline(const std::filesystem::path& models_path,
                               const SchedulerConfig& scheduler_config, const std::string& device,
                               const ov::AnyMap& properties = {},
                               const ov::AnyMap& tokenizer_properties = {})
        : ContinuousBatchingPipeline(
              tokenizer_properties.empty()
                  ? Pipeline(models_path, plain(scheduler_config), device,
                             supported_by_pipelines(properties))
                  : Pipeline(models_path, Tokenizer(models_path, tokenizer_properties),
                             plain(scheduler_config), device, supported_by_pipelines(properties))) {
    }
    ContinuousBatchingPipeline(const std::filesystem::path& models_path, const Tokenizer& tokenizer,
                               const SchedulerConfig& scheduler_config, const std::string& device,
                               const ov::AnyMap& properties = {})
        : ContinuousBatchingPipeline(Pipeline(models_path, tokenizer, plain(scheduler_config),
                                              device, supported_by_pipelines(properties))) {}
    ContinuousBatchingPipeline(const std::string& model_str, const ov::Tensor& weights_tensor,
                               const Tokenizer& tokenizer, const SchedulerConfig& scheduler_config,
                               const std::string& device, const ov::AnyMap& properties = {},
                               const GenerationConfig& generation_config = {})
        : ContinuousBatchingPipeline(Pipeline(model_str, weights_tensor, tokenizer,
                                              plain(scheduler_config), device,
                                              supported_by_pipelines(properties))) {
        set_config(generation_config);
    }

    Tokenizer get_tokenizer() const { return Pipeline::get_tokenizer(); }
    /// What calls by properties set them in: the model's own, until set_config().
    GenerationConfig get_config() const {
        const std::lock_guard lock(m_defaults->mutex);
        return m_defaults->config;
    }
    void set_config(const GenerationConfig& config) {
        supported(config).validate_values();
        const std::lock_guard lock(m_defaults->mutex);
        m_defaults->config = config;
    }

    using Pipeline::add_request;
    template <class Prompt>
    GenerationHandle add_request(uint64_t request_id, const Prompt& prompt,
                                 const GenerationConfig& sampling_params) {
        return Pipeline::add_request(request_id, prompt, supported(sampling_params));
    }
    GenerationHandle add_request(uint64_t request_id, const std::string& prompt,
                                 const ov::AnyMap& properties) {
        return Pipeline::add_request(request_id, prompt, with_config(properties));
    }

    std::vector<EncodedGenerationResult> generate(
        const std::vector<ov::Tensor>& input_ids,
        const std::vector<GenerationConfig>& sampling_params,
        const StreamerVariant& streamer = {}) {
        return Pipeline::generate(input_ids, plain(sampling_params), streamer);
    }
    std::vector<GenerationResult> generate(const std::vector<std::string>& prompts,
                                           const std::vector<GenerationConfig>& sampling_params,
                                           const StreamerVariant& streamer = {}) {
        return Pipeline::generate(prompts, plain(sampling_params), streamer);
    }
    std::vector<GenerationResult> generate(const std::vector<ChatHistory>& histories,
                                           const std::vector<GenerationConfig>& sampling_params,
                                           const StreamerVariant& streamer = {}) {
        return Pipeline::generate(histories, plain(sampling_params), streamer);
    }
    std::vector<GenerationResult> generate(const std::vector<std::string>& prompts,
                                           const ov::AnyMap& properties) {
        return Pipeline::generate(prompts, with_config(properties));
    }
    std::vector<GenerationResult> generate(const std::vector<ChatHistory>& histories,
                                           const ov::AnyMap& properties) {
        return Pipeline::generate(histories, with_config(properties));
    }
    template <class Prompt, class First, class... Properties>
    IfProperties<std::vector<GenerationResult>, First, Properties...> generate(
        const std::vector<Prompt>& prompts, First&& first, Properties&&... rest) {
        return generate(prompts,
                        ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }

private:
    using PlainConfigs = std::vector<pagewheel::GenerationConfig>;
    /// Shared by copies, which are the same pipeline.
    struct Defaults {
        explicit Defaults(const pagewheel::GenerationConfig& config) : config(config) {}

        std::mutex mutex;  // guards the config
        GenerationConfig config;
    };

    explicit ContinuousBatchingPipeline(Pipeline pipeline)
        : Pipeline(std::move(pipeline)),
          m_defaults(std::make_shared<Defaults>(Pipeline::get_config())) {}

    static PlainConfigs plain(const std::vector<GenerationConfig>& configs) {
        for (const GenerationConfig& config : configs) config.check_supported();
        return {configs.begin(), configs.end()};
    }
    static const pagewheel::SchedulerConfig& plain(const SchedulerConfig& config) {
        config.check_supported();
        return config;
    }
    ov::AnyMap with_config(ov::AnyMap properties) const {
        properties = supported(std::move(properties));
        ov::Any& config = properties["generation_config"];
        if (config.empty()) config = pagewheel::GenerationConfig(get_config());
        if (config.is<std::vector<GenerationConfig>>())
            config = plain(config.as<std::vector<GenerationConfig>>());
        return properties;
    }

    std::shared_ptr<Defaults> m_defaults;
};

}  // namespace pagewheel::openvino_genai
