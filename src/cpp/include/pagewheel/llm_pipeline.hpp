// One call from text to text.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "openvino/core/any.hpp"
#include "openvino/runtime/tensor.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel {

using StringInputs = std::variant<std::string, std::vector<std::string>, ChatHistory>;
/// i64 [tokens] or [batch, tokens], or such a batch with a mask that leaves padding out.
using EncodedInputs = std::variant<ov::Tensor, TokenizedInputs>;

/// Text in, text out; the same engine as ContinuousBatchingPipeline. Everything may be called from
/// any thread and from callbacks, as there. A chat's turns come one at a time: while one is being
/// generated another throws Error. A copy is the same pipeline, its chat included.
class PAGEWHEEL_API LLMPipeline {
public:
    /// One caller comes again with the same chat: prefix caching is on.
    static SchedulerConfig default_scheduler_config();

    /// As ContinuousBatchingPipeline's. A "scheduler_config" among the properties goes before the
    /// argument. Properties may stand one by one, too. The model is a path; for one of the Hugging
    /// Face hub it is what the command `pagewheel pull owner/name` prints.
    explicit LLMPipeline(const std::filesystem::path& model_folder,
                         const std::string& device = "CPU", const ov::AnyMap& properties = {},
                         const SchedulerConfig& scheduler_config = default_scheduler_config());
    LLMPipeline(const std::filesystem::path& model_folder, const Tokenizer& tokenizer,
                const std::string& device = "CPU", const ov::AnyMap& properties = {},
                const SchedulerConfig& scheduler_config = default_scheduler_config());
    LLMPipeline(const std::string& model, const ov::Tensor& weights, const Tokenizer& tokenizer,
                const std::string& device = "CPU", const ov::AnyMap& properties = {},
                const SchedulerConfig& scheduler_config = default_scheduler_config());

    template <class First, class... Properties, class = IfProperties<void, First, Properties...>>
    LLMPipeline(const std::filesystem::path& model_folder, const std::string& device, First&& first,
                Properties&&... rest)
        : LLMPipeline(model_folder, device,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...}) {}
    template <class First, class... Properties, class = IfProperties<void, First, Properties...>>
    LLMPipeline(const std::filesystem::path& model_folder, const Tokenizer& tokenizer,
                const std::string& device, First&& first, Properties&&... rest)
        : LLMPipeline(model_folder, tokenizer, device,
                      ov::AnyMap{std::forward<First>(first), std::forward<Properties>(rest)...}) {}

    /// Without a config, the model's own (get_generation_config()). A string is put into the
    /// model's chat template as a user message, if there is one and apply_chat_template is not
    /// switched off.
    DecodedResults generate(const StringInputs& inputs,
                            const std::optional<GenerationConfig>& config = std::nullopt,
                            const StreamerVariant& streamer = {});
    EncodedResults generate(const EncodedInputs& inputs,
                            const std::optional<GenerationConfig>& config = std::nullopt,
                            const StreamerVariant& streamer = {});

    /// Takes parameters of the config by name, set in the model's own or in "generation_config",
    /// and "streamer" (pagewheel/properties.hpp): in a map or one by one.
    DecodedResults generate(const StringInputs& inputs, const ov::AnyMap& properties);
    EncodedResults generate(const EncodedInputs& inputs, const ov::AnyMap& properties);
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
    /// generate() of texts.
    template <class... Arguments>
    DecodedResults operator()(const StringInputs& inputs, Arguments&&... arguments) {
        return generate(inputs, std::forward<Arguments>(arguments)...);
    }

    /// As ContinuousBatchingPipeline's.
    void start_chat(const std::string& system_message = {}) {
        m_pipeline.start_chat(system_message);
    }
    void finish_chat() { m_pipeline.finish_chat(); }

    Tokenizer get_tokenizer() const { return m_pipeline.get_tokenizer(); }
    GenerationConfig get_generation_config() const;
    /// The model's stop tokens are filled in where it names none.
    void set_generation_config(const GenerationConfig& config);
    PipelineMetrics get_metrics() const { return m_pipeline.get_metrics(); }
    PipelineStatistics get_statistics() const { return m_pipeline.get_statistics(); }
    PrefixCache get_prefix_cache() const;
    /// As ContinuousBatchingPipeline's.
    void set_step_hook(std::function<void()> hook) { m_pipeline.set_step_hook(std::move(hook)); }

private:
    struct Session;
    explicit LLMPipeline(ContinuousBatchingPipeline pipeline);

    ContinuousBatchingPipeline m_pipeline;
    std::shared_ptr<Session> m_session;
};

}  // namespace pagewheel
