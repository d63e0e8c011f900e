#include "pagewheel/llm_pipeline.hpp"

#include <mutex>
#include <type_traits>
#include <utility>

#include "base/check.hpp"
#include "base/process.hpp"
#include "pagewheel/prefix_cache.hpp"
#include "pipelines/pipeline_impl.hpp"

namespace pagewheel {
namespace {

/// Results of several prompts, one after the other; `outputs` is what Results has of their outputs.
template <class Results, class Result, class Outputs>
Results join(std::vector<Result>&& results, Outputs Results::* outputs) {
    Results joined;
    for (Result& result : results) {
        joined.perf_metrics = result.perf_metrics;
        joined.extended_perf_metrics = result.extended_perf_metrics;
        joined.request_metrics.push_back(result.request_metrics);
        append(joined.scores, result.m_scores);
        append(joined.finish_reasons, result.m_finish_reasons);
        append(joined.*outputs, std::move(result.m_generation_ids));
        if constexpr (std::is_same_v<Results, DecodedResults>)
            append(joined.parsed, std::move(result.parsed));
    }
    return joined;
}

/// The rows of a batch without what the mask leaves out.
std::vector<std::vector<int64_t>> unpadded(const TokenizedInputs& inputs) {
    const ov::Tensor& ids = inputs.input_ids;
    check_argument(ids.get_element_type() == ov::element::i64, ParameterName("input_ids"),
                   " have type ", ids.get_element_type(), "; expected i64");
    const ov::Shape shape = ids.get_shape();
    check_argument(shape.size() == 1 || shape.size() == 2, ParameterName("input_ids"),
                   " have shape ", shape, "; expected [tokens] or [batch, tokens]");
    const bool masked = bool(inputs.attention_mask);
    if (masked)
        check_argument(inputs.attention_mask.get_element_type() == ov::element::i64 &&
                           inputs.attention_mask.get_shape() == shape,
                       ParameterName("attention_mask"), " has shape ",
                       inputs.attention_mask.get_shape(), " and type ",
                       inputs.attention_mask.get_element_type(), "; expected ", shape, " and i64");
    const size_t width = shape.back(), height = shape.size() == 2 ? shape[0] : 1;
    std::vector<std::vector<int64_t>> rows(height);
    for (size_t i = 0; i < height * width; ++i)
        if (!masked || inputs.attention_mask.data<const int64_t>()[i] != 0)
            rows[i / width].push_back(ids.data<const int64_t>()[i]);
    return rows;
}

const GenerationConfig& one_of(const std::vector<GenerationConfig>& configs) {
    check_argument(configs.size() == 1, ParameterName("generation_config"), " is a list of ",
                   configs.size(), "; allowed: one config");
    return configs.front();
}

/// The pipeline that they make, of what is left of the properties.
template <class Make>
ContinuousBatchingPipeline make_pipeline(ov::AnyMap properties, const SchedulerConfig& config,
                                         const Make& make) {
    const SchedulerConfig scheduler = take_scheduler_config(properties, config);
    return make(scheduler, properties);
}

}  // namespace

/// What calls leave for later ones.
struct LLMPipeline::Session {
    explicit Session(GenerationConfig config) : config(std::move(config)) {}

    const ProcessMark process;
    std::mutex mutex;  // guards what follows
    GenerationConfig config;

    /// Throws in a child that fork() made.
    std::unique_lock<std::mutex> lock() {
        process.check("pipeline");
        return std::unique_lock(mutex);
    }
};

SchedulerConfig LLMPipeline::default_scheduler_config() {
    SchedulerConfig config;
    config.enable_prefix_caching = true;
    return config;
}

LLMPipeline::LLMPipeline(ContinuousBatchingPipeline pipeline)
    : m_pipeline(std::move(pipeline)),
      m_session(std::make_shared<Session>(m_pipeline.get_config())) {}

LLMPipeline::LLMPipeline(const std::filesystem::path& model_folder, const std::string& device,
                         const ov::AnyMap& properties, const SchedulerConfig& scheduler_config)
    : LLMPipeline(make_pipeline(
          properties, scheduler_config, [&](const auto& scheduler, const auto& others) {
              return ContinuousBatchingPipeline(model_folder, scheduler, device, others);
          })) {}

LLMPipeline::LLMPipeline(const std::filesystem::path& model_folder, const Tokenizer& tokenizer,
                         const std::string& device, const ov::AnyMap& properties,
                         const SchedulerConfig& scheduler_config)
    : LLMPipeline(make_pipeline(
          properties, scheduler_config, [&](const auto& scheduler, const auto& others) {
              return ContinuousBatchingPipeline(model_folder, tokenizer, scheduler, device, others);
          })) {}

LLMPipeline::LLMPipeline(const std::string& model, const ov::Tensor& weights,
                         const Tokenizer& tokenizer, const std::string& device,
                         const ov::AnyMap& properties, const SchedulerConfig& scheduler_config)
    : LLMPipeline(make_pipeline(properties, scheduler_config,
                                [&](const auto& scheduler, const auto& others) {
                                    return ContinuousBatchingPipeline(model, weights, tokenizer,
                                                                      scheduler, device, others);
                                })) {}

DecodedResults LLMPipeline::generate(const StringInputs& inputs,
                                     const std::optional<GenerationConfig>& config,
                                     const StreamerVariant& streamer) {
    const std::vector<GenerationConfig> configs{config ? *config : get_generation_config()};
    constexpr auto texts = &DecodedResults::texts;
    if (const auto* history = std::get_if<ChatHistory>(&inputs))
        return join(m_pipeline.generate(std::vector{*history}, configs, streamer), texts);
    if (const auto* prompts = std::get_if<std::vector<std::string>>(&inputs))
        return join(m_pipeline.generate(*prompts, configs, streamer), texts);
    const std::vector<std::string> prompt{std::get<std::string>(inputs)};
    return join(m_pipeline.generate(prompt, configs, streamer), texts);
}

EncodedResults LLMPipeline::generate(const EncodedInputs& inputs,
                                     const std::optional<GenerationConfig>& config,
                                     const StreamerVariant& streamer) {
    const auto* tensor = std::get_if<ov::Tensor>(&inputs);
    const auto prompts =
        unpadded(tensor ? TokenizedInputs{*tensor, {}} : std::get<TokenizedInputs>(inputs));
    return join(
        m_pipeline.generate(prompts, {config ? *config : get_generation_config()}, streamer),
        &EncodedResults::tokens);
}

DecodedResults LLMPipeline::generate(const StringInputs& inputs, const ov::AnyMap& properties) {
    const auto read = read_generate_properties(get_generation_config(), properties);
    return generate(inputs, one_of(read.configs), read.streamer);
}
EncodedResults LLMPipeline::generate(const EncodedInputs& inputs, const ov::AnyMap& properties) {
    const auto read = read_generate_properties(get_generation_config(), properties);
    return generate(inputs, one_of(read.configs), read.streamer);
}

GenerationConfig LLMPipeline::get_generation_config() const {
    const auto lock = m_session->lock();
    return m_session->config;
}
void LLMPipeline::set_generation_config(const GenerationConfig& config) {
    GenerationConfig in_force = with_stops_of(m_pipeline.get_config(), config);
    in_force.validate_values();
    const auto lock = m_session->lock();
    m_session->config = std::move(in_force);
}
PrefixCache LLMPipeline::get_prefix_cache() const {
    return m_pipeline.get_prefix_cache();
}

}  // namespace pagewheel
