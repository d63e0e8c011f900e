// One call from text to text.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "openvino/genai/generation_config.hpp"
#include "openvino/genai/generation_handle.hpp"
#include "openvino/genai/names.hpp"
#include "openvino/genai/scheduler_config.hpp"
#include "openvino/genai/tokenizer.hpp"
#include "openvino/runtime/infer_request.hpp"
#include "pagewheel/llm_pipeline.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::EncodedInputs;
using pagewheel::StringInputs;

using OptionalGenerationConfig = std::optional<GenerationConfig>;

/// Properties of a pipeline. Throws InvalidArgument where they ask for what is not there.
inline ov::AnyMap supported_by_pipelines(ov::AnyMap properties) {
    const auto scheduling = properties.find("scheduler_config");
    if (scheduling != properties.end() && scheduling->second.is<SchedulerConfig>())
        scheduling->second.as<SchedulerConfig>().check_supported();
    return supported(std::move(properties));
}

/// pagewheel::LLMPipeline, but what is drawn at random is the same at each call.
class LLMPipeline : public pagewheel::LLMPipeline {
    using Pipeline = pagewheel::LLMPipeline;

public:
    /// The engine compiles its own graph of a model, so it cannot take a compiled one: a folder or
    /// the model's text and weights are what it opens.
    LLMPipeline(const ov::InferRequest& request, const Tokenizer& tokenizer,
                OptionalGenerationConfig generation_config = std::nullopt) = delete;
    LLMPipeline(const std::filesystem::path& models_path, const std::string& device,
                const ov::AnyMap& properties = {})
        : LLMPipeline(Pipeline(models_path, device, supported_by_pipelines(properties))) {}
    LLMPipeline(const std::filesystem::path& models_path, const Tokenizer& tokenizer,
                const std::string& device, const ov::AnyMap& properties = {})
        : LLMPipeline(
              Pipeline(models_path, tokenizer, device, supported_by_pipelines(properties))) {}
    LLMPipeline(const std::string& model_str, const ov::Tensor& weights_tensor,
                const Tokenizer& tokenizer, const std::string& device,
                const ov::AnyMap& properties = {}, const GenerationConfig& generation_config = {})
        : LLMPipeline(Pipeline(model_str, weights_tensor, tokenizer, device,
                               supported_by_pipelines(properties))) {
        set_generation_config(generation_config);
    }
    template <class First, class... Properties, class = IfProperties<void, First, Properties...>>
    LLMPipeline(const std::filesystem::path& models_path, const std::string& device, First&& first,
                Properties&&... rest)
        : LLMPipeline(models_path, device,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...}) {}
    template <class First, class... Properties, class = IfProperties<void, First, Properties...>>
    LLMPipeline(const std::filesystem::path& models_path, const Tokenizer& tokenizer,
                const std::string& device, First&& first, Properties&&... rest)
        : LLMPipeline(models_path, tokenizer, device,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...}) {}

    DecodedResults generate(const StringInputs& inputs,
                            const OptionalGenerationConfig& config = std::nullopt,
                            const StreamerVariant& streamer = {}) {
        return Pipeline::generate(inputs, plain(config), streamer);
    }
    EncodedResults generate(const EncodedInputs& inputs,
                            const OptionalGenerationConfig& config = std::nullopt,
                            const StreamerVariant& streamer = {}) {
        return Pipeline::generate(inputs, plain(config), streamer);
    }
    DecodedResults generate(const StringInputs& inputs, const ov::AnyMap& properties) {
        return Pipeline::generate(inputs, supported(properties));
    }
    EncodedResults generate(const EncodedInputs& inputs, const ov::AnyMap& properties) {
        return Pipeline::generate(inputs, supported(properties));
    }
    template <class First, class... Properties>
    IfProperties<DecodedResults, First, Properties...> generate(const StringInputs& inputs,
                                                                First&& first,
                                                                Properties&&... rest) {
        return generate(inputs,
                        ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }
    template <class First, class... Properties>
    IfProperties<EncodedResults, First, Properties...> generate(const EncodedInputs& inputs,
                                                                First&& first,
                                                                Properties&&... rest) {
        return generate(inputs,
                        ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...});
    }
    template <class... Arguments>
    DecodedResults operator()(const StringInputs& inputs, Arguments&&... arguments) {
        return generate(inputs, std::forward<Arguments>(arguments)...);
    }

    Tokenizer get_tokenizer() const { return Pipeline::get_tokenizer(); }
    GenerationConfig get_generation_config() const { return Pipeline::get_generation_config(); }
    void set_generation_config(const GenerationConfig& config) {
        Pipeline::set_generation_config(supported(config));
    }

private:
    static std::optional<pagewheel::GenerationConfig> plain(
        const OptionalGenerationConfig& config) {
        if (!config) return std::nullopt;
        return supported(*config);
    }
    explicit LLMPipeline(Pipeline pipeline) : Pipeline(std::move(pipeline)) {
        set_generation_config(get_generation_config());
    }
};

}  // namespace pagewheel::openvino_genai
