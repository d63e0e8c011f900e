#include "pagewheel/llm_pipeline.hpp"

#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "base/process_mark.hpp"
#include "pagewheel/prefix_cache.hpp"

namespace pagewheel {
namespace {

/// Results of several prompts, one after the other.
template <class Results, class Result>
Results join(std::vector<Result>&& results,
             std::vector<decltype(Result().m_generation_ids)>& outputs) {
    Results joined;
    for (Result& result : results) {
        joined.perf_metrics = result.perf_metrics;
        joined.scores.insert(joined.scores.end(), result.m_scores.begin(), result.m_scores.end());
        joined.finish_reasons.insert(joined.finish_reasons.end(), result.m_finish_reasons.begin(),
                                     result.m_finish_reasons.end());
        outputs.push_back(std::move(result.m_generation_ids));
    }
    return joined;
}

template <class T>
std::vector<T> flatten(std::vector<std::vector<T>>&& lists) {
    std::vector<T> flat;
    for (auto& list : lists)
        flat.insert(flat.end(), std::make_move_iterator(list.begin()),
                    std::make_move_iterator(list.end()));
    return flat;
}

DecodedResults joined_texts(std::vector<GenerationResult>&& results) {
    std::vector<std::vector<std::string>> texts;
    auto joined = join<DecodedResults>(std::move(results), texts);
    joined.texts = flatten(std::move(texts));
    return joined;
}

/// The rows of a batch without what the mask leaves out.
std::vector<std::vector<int64_t>> unpadded(const TokenizedInputs& inputs) {
    const ov::Tensor& ids = inputs.input_ids;
    check_argument(ids.get_element_type() == ov::element::i64, "input_ids have type ",
                   ids.get_element_type(), "; expected i64");
    const ov::Shape shape = ids.get_shape();
    check_argument(shape.size() == 1 || shape.size() == 2, "input_ids have shape ", shape,
                   "; expected [tokens] or [batch, tokens]");
    const bool masked = bool(inputs.attention_mask);
    if (masked)
        check_argument(inputs.attention_mask.get_element_type() == ov::element::i64 &&
                           inputs.attention_mask.get_shape() == shape,
                       "attention_mask has shape ", inputs.attention_mask.get_shape(), " and type ",
                       inputs.attention_mask.get_element_type(), "; expected ", shape, " and i64");
    const size_t width = shape.back(), height = shape.size() == 2 ? shape[0] : 1;
    std::vector<std::vector<int64_t>> rows(height);
    for (size_t i = 0; i < height * width; ++i)
        if (!masked || inputs.attention_mask.data<const int64_t>()[i] != 0)
            rows[i / width].push_back(ids.data<const int64_t>()[i]);
    return rows;
}

}  // namespace

/// What calls leave for later ones.
struct LLMPipeline::Session {
    explicit Session(GenerationConfig config) : config(std::move(config)) {}

    const ProcessMark process;
    std::mutex mutex;  // guards what follows
    GenerationConfig config;
    std::optional<ChatHistory> chat;
    uint64_t chat_number = 0;  // of the chat; each start and finish makes it another
    uint64_t turn_of = 0;      // number of the chat of which a turn is being generated

    /// Throws in a child that fork() made.
    std::unique_lock<std::mutex> lock() {
        process.check("pipeline");
        return std::unique_lock(mutex);
    }
    void change_chat(std::optional<ChatHistory> next) {
        const auto lock = this->lock();
        chat = std::move(next);
        ++chat_number;
    }
};

/// A chat's turn while it is generated.
class LLMPipeline::Turn {
public:
    /// Throws std::runtime_error if the chat is at another.
    Turn(std::shared_ptr<Session> session, const std::string& prompt)
        : m_session(std::move(session)) {
        const auto lock = m_session->lock();
        if (!m_session->chat) return;
        if (m_session->turn_of == m_session->chat_number)
            throw std::runtime_error(
                "a turn of this chat is being generated; the next one can begin when it is over");
        m_history = m_session->chat;
        m_history->append("user", prompt);
        m_number = m_session->turn_of = m_session->chat_number;
    }
    ~Turn() {
        if (m_number == 0) return;
        const std::lock_guard lock(m_session->mutex);
        if (m_session->turn_of == m_number) m_session->turn_of = 0;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// With the prompt; nothing where there is no chat.
    const std::optional<ChatHistory>& history() const { return m_history; }
    void remember(const std::string& answer) {
        m_history->append("assistant", answer);
        const auto lock = m_session->lock();
        if (m_session->chat_number == m_number) m_session->chat = std::move(m_history);
    }

private:
    const std::shared_ptr<Session> m_session;  // a callback may drop the pipeline
    std::optional<ChatHistory> m_history;
    uint64_t m_number = 0;
};

SchedulerConfig LLMPipeline::default_scheduler_config() {
    SchedulerConfig config;
    config.enable_prefix_caching = true;
    return config;
}

LLMPipeline::LLMPipeline(const std::filesystem::path& model_folder, const std::string& device,
                         const ov::AnyMap& properties, const SchedulerConfig& scheduler_config)
    : m_pipeline(model_folder, scheduler_config, device, properties),
      m_session(std::make_shared<Session>(m_pipeline.get_config())) {}

LLMPipeline::LLMPipeline(const std::filesystem::path& model_folder, const Tokenizer& tokenizer,
                         const std::string& device, const ov::AnyMap& properties,
                         const SchedulerConfig& scheduler_config)
    : m_pipeline(model_folder, tokenizer, scheduler_config, device, properties),
      m_session(std::make_shared<Session>(m_pipeline.get_config())) {}

DecodedResults LLMPipeline::generate(const StringInputs& inputs,
                                     const std::optional<GenerationConfig>& config,
                                     const StreamerVariant& streamer) {
    const std::vector<GenerationConfig> configs{config ? *config : get_generation_config()};
    if (const auto* history = std::get_if<ChatHistory>(&inputs))
        return joined_texts(m_pipeline.generate(std::vector{*history}, configs, streamer));
    if (const auto* prompts = std::get_if<std::vector<std::string>>(&inputs)) {
        check_argument(!is_in_chat(), "a chat takes one string at a time, got a list of ",
                       prompts->size());
        return joined_texts(m_pipeline.generate(*prompts, configs, streamer));
    }
    const auto& prompt = std::get<std::string>(inputs);
    Turn turn(m_session, prompt);
    if (!turn.history())
        return joined_texts(m_pipeline.generate(std::vector{prompt}, configs, streamer));
    auto results = m_pipeline.generate(std::vector{*turn.history()}, configs, streamer);
    if (results.front().m_status != GenerationStatus::CANCEL)
        turn.remember(results.front().m_generation_ids.front());
    return joined_texts(std::move(results));
}

EncodedResults LLMPipeline::generate(const EncodedInputs& inputs,
                                     const std::optional<GenerationConfig>& config,
                                     const StreamerVariant& streamer) {
    const auto* tensor = std::get_if<ov::Tensor>(&inputs);
    const auto prompts =
        unpadded(tensor ? TokenizedInputs{*tensor, {}} : std::get<TokenizedInputs>(inputs));
    std::vector<std::vector<std::vector<int64_t>>> tokens;
    auto joined = join<EncodedResults>(
        m_pipeline.generate(prompts, {config ? *config : get_generation_config()}, streamer),
        tokens);
    joined.tokens = flatten(std::move(tokens));
    return joined;
}

void LLMPipeline::start_chat(const std::string& system_message) {
    ChatHistory chat;
    if (!system_message.empty()) chat.append("system", system_message);
    m_session->change_chat(std::move(chat));
}

void LLMPipeline::finish_chat() {
    m_session->change_chat(std::nullopt);
}

bool LLMPipeline::is_in_chat() const {
    const auto lock = m_session->lock();
    return m_session->chat.has_value();
}

Tokenizer LLMPipeline::get_tokenizer() const {
    return m_pipeline.get_tokenizer();
}
GenerationConfig LLMPipeline::get_generation_config() const {
    const auto lock = m_session->lock();
    return m_session->config;
}
void LLMPipeline::set_generation_config(const GenerationConfig& config) {
    config.validate();
    const auto lock = m_session->lock();
    m_session->config = config;
}
PipelineMetrics LLMPipeline::get_metrics() const {
    return m_pipeline.get_metrics();
}
PipelineStatistics LLMPipeline::get_statistics() const {
    return m_pipeline.get_statistics();
}
PrefixCache LLMPipeline::get_prefix_cache() const {
    return m_pipeline.get_prefix_cache();
}
void LLMPipeline::set_step_hook(std::function<void()> hook) {
    m_pipeline.set_step_hook(std::move(hook));
}

}  // namespace pagewheel
