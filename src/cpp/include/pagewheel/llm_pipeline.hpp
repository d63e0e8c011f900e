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

namespace pagewheel {

using StringInputs = std::variant<std::string, std::vector<std::string>, ChatHistory>;
/// i64 [tokens] or [batch, tokens], or such a batch with a mask that leaves padding out.
using EncodedInputs = std::variant<ov::Tensor, TokenizedInputs>;

/// Text in, text out; the same engine as ContinuousBatchingPipeline. Everything may be called from
/// any thread and from callbacks, as there. A chat's turns come one at a time: while one is being
/// generated another throws std::runtime_error. A copy is the same pipeline, its chat included.
class PAGEWHEEL_API LLMPipeline {
public:
    /// One caller comes again with the same chat: prefix caching is on.
    static SchedulerConfig default_scheduler_config();

    /// As ContinuousBatchingPipeline's.
    explicit LLMPipeline(const std::filesystem::path& model_folder,
                         const std::string& device = "CPU", const ov::AnyMap& properties = {},
                         const SchedulerConfig& scheduler_config = default_scheduler_config());
    LLMPipeline(const std::filesystem::path& model_folder, const Tokenizer& tokenizer,
                const std::string& device = "CPU", const ov::AnyMap& properties = {},
                const SchedulerConfig& scheduler_config = default_scheduler_config());
    LLMPipeline(const std::string& model, const ov::Tensor& weights, const Tokenizer& tokenizer,
                const std::string& device = "CPU", const ov::AnyMap& properties = {},
                const SchedulerConfig& scheduler_config = default_scheduler_config());

    /// Without a config, the model's own (get_generation_config()). A string is put into the
    /// model's chat template as a user message, if there is one and apply_chat_template is not
    /// switched off.
    DecodedResults generate(const StringInputs& inputs,
                            const std::optional<GenerationConfig>& config = std::nullopt,
                            const StreamerVariant& streamer = {});
    EncodedResults generate(const EncodedInputs& inputs,
                            const std::optional<GenerationConfig>& config = std::nullopt,
                            const StreamerVariant& streamer = {});

    /// As ContinuousBatchingPipeline's.
    void start_chat(const std::string& system_message = {});
    void finish_chat();

    Tokenizer get_tokenizer() const;
    GenerationConfig get_generation_config() const;
    /// The model's stop tokens are filled in where it names none.
    void set_generation_config(const GenerationConfig& config);
    PipelineMetrics get_metrics() const;
    PipelineStatistics get_statistics() const;
    PrefixCache get_prefix_cache() const;
    void set_step_hook(std::function<void()> hook);  ///< As ContinuousBatchingPipeline's.

private:
    struct Session;

    ContinuousBatchingPipeline m_pipeline;
    std::shared_ptr<Session> m_session;
};

}  // namespace pagewheel
