// The implementation behind ContinuousBatchingPipeline's handle.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/model_folder.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pipelines/chat_session.hpp"
#include "runtime/engine.hpp"
#include "runtime/engine_thread.hpp"

namespace pagewheel {

/// The config with the model's stop tokens where it names none.
GenerationConfig with_stops_of(const GenerationConfig& model, GenerationConfig config);

/// Throws InvalidArgument unless there is one config for all prompts, or one each.
void check_configs(const std::vector<GenerationConfig>& configs, size_t num_prompts);
/// The prompt's.
inline const GenerationConfig& config_of(const std::vector<GenerationConfig>& configs,
                                         size_t prompt) {
    return configs.size() == 1 ? configs.front() : configs[prompt];
}

/// What generate() made of one prompt, before it becomes tokens or text for the caller.
struct GeneratedPrompt {
    std::vector<int64_t> prompt;
    bool echo;
    std::shared_ptr<GenerationHandle::State> state;
};

/// A text as it is encoded.
struct TextPrompt {
    std::string text;
    bool add_special_tokens;  ///< A rendered chat template brings its own.
};

class ContinuousBatchingPipeline::Impl {
public:
    /// Without a tokenizer the folder's.
    Impl(const ModelFolder& folder, const Tokenizer* tokenizer,
         const SchedulerConfig& scheduler_config, const std::string& device,
         const ov::AnyMap& properties);

    std::shared_ptr<GenerationHandle> add_request(uint64_t id, const std::vector<int64_t>& prompt,
                                                  const GenerationConfig& config);
    std::vector<EncodedGenerationResult> generate(const std::vector<std::vector<int64_t>>& prompts,
                                                  const std::vector<GenerationConfig>& configs,
                                                  const StreamerVariant& streamer);
    /// Encodes, generates and decodes.
    std::vector<GenerationResult> generate_text(const std::vector<TextPrompt>& prompts,
                                                const std::vector<GenerationConfig>& configs,
                                                const StreamerVariant& streamer,
                                                PerfMetrics metrics);

    Engine& engine() { return *m_engine; }
    EngineThread& engine_thread() { return *m_engine_thread; }
    void set_step_hook(std::function<void()> hook);

    /// The history in the model's template.
    TextPrompt render(const ChatHistory& history, PerfMetrics& metrics) const;

    ChatSession chat;
    Tokenizer tokenizer;
    const GenerationConfig default_config;

private:
    struct Loaded;
    Impl(Loaded&& loaded, const SchedulerConfig& scheduler_config);

    std::vector<GeneratedPrompt> run(const std::vector<std::vector<int64_t>>& prompts,
                                     const std::vector<GenerationConfig>& configs,
                                     const StreamerVariant& streamer, PerfMetrics& metrics);
    /// With the model's stop tokens where the config names none.
    std::shared_ptr<GenerationHandle::State> submit(std::optional<uint64_t> id,
                                                    const std::vector<int64_t>& prompt,
                                                    const GenerationConfig& config);

    std::function<void()> step_hook() const;
    /// Steps, or waits for the thread that does, until all are over; streams meanwhile.
    void finish(const std::vector<GeneratedPrompt>& results, const StreamerVariant& streamer,
                PerfMetrics& metrics);

    std::shared_ptr<Engine> m_engine;
    std::unique_ptr<EngineThread> m_engine_thread;
    float m_load_time = 0;
    mutable std::mutex m_hook_mutex;  // guards the hook
    std::function<void()> m_step_hook;
};

/// Runs `function` and appends its duration in microseconds to `durations`.
template <class Function>
auto timed(std::vector<float>& durations, Function&& function) {
    const auto begin = Clock::now();
    auto result = function();
    durations.push_back(microseconds_since(begin));
    return result;
}

}  // namespace pagewheel
