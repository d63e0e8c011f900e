// The implementation behind ContinuousBatchingPipeline's handle, and its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "model/model_folder.hpp"
#include "openvino/core/any.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"
#include "runtime/engine.hpp"
#include "runtime/engine_thread.hpp"

namespace pagewheel {

/// May be used by any thread. Throws in a child that fork() made.
class ChatSession {
public:
    class Turn;

    void start(const std::string& system_message);
    void finish();
    bool is_open() const;

private:
    std::unique_lock<std::mutex> lock() const;
    void change(std::optional<ChatHistory> next);

    const ProcessMark m_process;
    mutable std::mutex m_mutex;  // guards what follows
    std::optional<ChatHistory> m_chat;
    uint64_t m_number = 0;   // of the chat; each start and finish makes it another
    uint64_t m_turn_of = 0;  // number of the chat of which a turn is being generated
};

/// A turn while it is generated. One that is not remembered is forgotten, and so is one during
/// which the chat was started or finished.
class ChatSession::Turn {
public:
    /// Throws Error if the chat is at another. `session` must outlive the turn.
    Turn(ChatSession& session, const std::string& prompt);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// The chat so far, with the prompt.
    const ChatHistory& history() const { return m_history; }
    void remember(const std::string& answer);

private:
    ChatSession& m_session;
    ChatHistory m_history;
    uint64_t m_number;
};

/// The config with the model's stop tokens where it names none.
GenerationConfig with_stops_of(const GenerationConfig& model, GenerationConfig config);

/// Throws InvalidArgument unless there is one config for all prompts, or one each.
void check_configs(const std::vector<GenerationConfig>& configs, size_t num_prompts);
/// The config of a prompt.
inline const GenerationConfig& config_of(const std::vector<GenerationConfig>& configs,
                                         size_t prompt) {
    return configs.size() == 1 ? configs.front() : configs[prompt];
}

/// A text as it is encoded.
struct TextPrompt {
    std::string text;
    bool add_special_tokens;  ///< A rendered chat template brings its own.
};

class ContinuousBatchingPipeline::Impl {
public:
    /// Takes the folder's tokenizer where none is given.
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
    struct GeneratedPrompt;
    Impl(Loaded&& loaded, const SchedulerConfig& scheduler_config);

    std::vector<GeneratedPrompt> run(const std::vector<std::vector<int64_t>>& prompts,
                                     const std::vector<GenerationConfig>& configs,
                                     const StreamerVariant& streamer, PerfMetrics& metrics);
    /// Adds the model's stop tokens where the config names none.
    std::shared_ptr<GenerationHandle::State> submit(std::optional<uint64_t> id,
                                                    const std::vector<int64_t>& prompt,
                                                    const GenerationConfig& config);

    /// Null without a draft model.
    std::shared_ptr<SDPerModelsPerfMetrics> extended(const PerfMetrics& metrics) const;
    std::function<void()> step_hook() const;
    /// Steps, or waits for the thread that does, until all are over; streams meanwhile.
    void finish(const std::vector<GeneratedPrompt>& results, const StreamerVariant& streamer,
                PerfMetrics& metrics);

    std::shared_ptr<Engine> m_engine;
    std::unique_ptr<EngineThread> m_engine_thread;
    bool m_has_draft_model = false;
    float m_load_time = 0;
    mutable std::mutex m_hook_mutex;  // guards the hook
    std::function<void()> m_step_hook;
};

template <class T>
void append(std::vector<T>& to, std::vector<T> from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Runs `function` and appends its duration in microseconds to `durations`.
template <class Function>
auto timed(std::vector<float>& durations, Function&& function) {
    const auto begin = Clock::now();
    auto result = function();
    durations.push_back(microseconds_since(begin));
    return result;
}

/// A message per output, as JSON: the config's parsers applied to its text, or what a
/// TextParserStreamer has parsed. Empty without either.
std::vector<std::string> parsed_outputs(const GenerationConfig& config,
                                        const StreamerVariant& streamer, const Tokenizer& tokenizer,
                                        const std::vector<GenerationOutput>& outputs);

struct GenerateProperties {
    std::vector<GenerationConfig> configs;  // one for all prompts, or one each
    StreamerVariant streamer;
};

/// Sets the properties in `config`, or in the one or the list, one for each prompt, that they hold.
/// Throws InvalidArgument.
GenerateProperties read_generate_properties(GenerationConfig config, ov::AnyMap properties);

/// Takes "scheduler_config" out of the properties; without it `config`.
SchedulerConfig take_scheduler_config(ov::AnyMap& properties, const SchedulerConfig& config);

}  // namespace pagewheel
