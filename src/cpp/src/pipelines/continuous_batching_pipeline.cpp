#include "pagewheel/continuous_batching_pipeline.hpp"

#include <algorithm>
#include <future>
#include <optional>
#include <sstream>
#include <utility>

#include "base/check.hpp"
#include "base/process.hpp"
#include "model/model_folder.hpp"
#include "pagewheel/properties.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "pipelines/pipeline_impl.hpp"
#include "pipelines/text_rules.hpp"
#include "runner/openvino_model.hpp"

namespace pagewheel {

void SchedulerConfig::validate() const {
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)                     \
    {                                                                                          \
        [[maybe_unused]] const type& value = name;                                             \
        check_argument(condition, ParameterName(#name), " is ", name, "; allowed: ", allowed); \
    }
#include "pagewheel/scheduler_parameters.def"
    if (use_cache_eviction) cache_eviction_config.validate();
}

std::string SchedulerConfig::to_string() const {
    std::ostringstream text;
    text << std::boolalpha;
    const char* before = "SchedulerConfig { ";
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    text << std::exchange(before, ", ") << #name ": " << name;
#include "pagewheel/scheduler_parameters.def"
    if (use_cache_eviction)
        text << ", cache_eviction_config: " << cache_eviction_config.to_string();
    return text.str() + " }";
}

namespace {

GenerationConfig default_config_of(const ModelFolder& folder, const Tokenizer& tokenizer) {
    const std::filesystem::path json = folder.generation_config_json();
    GenerationConfig config;
    if (std::filesystem::exists(json)) config = GenerationConfig(json);
    const int64_t eos = tokenizer.get_eos_token_id();
    if (config.eos_token_id == -1 && eos != -1) config.set_eos_token_id(eos);
    return config;
}

std::vector<int64_t> prompt_of(const ov::Tensor& tensor) {
    check_argument(bool(tensor) && tensor.get_element_type() == ov::element::i64,
                   ParameterName("prompt", "a prompt's tensor"), " must be of type i64");
    const ov::Shape shape = tensor.get_shape();
    check_argument(shape.size() == 1 || (shape.size() == 2 && shape[0] == 1),
                   ParameterName("prompt", "a prompt's tensor"), " has shape ", shape,
                   "; expected [tokens] or [1, tokens]");
    const auto* ids = tensor.data<const int64_t>();
    return {ids, ids + tensor.get_size()};
}

bool is_on(const ov::AnyMap& properties, const char* name) {
    const auto found = properties.find(name);
    try {
        return found != properties.end() && found->second.as<bool>();
    } catch (const ov::Exception&) {  // no bool: parse_compile_options says so
        return false;
    }
}

/// openvino_genai's "prompt_lookup" is another name for what the scheduler's config says.
SchedulerConfig with_lookup(SchedulerConfig config, const ov::AnyMap& properties) {
    if (is_on(properties, "prompt_lookup") && config.speculation != "mtp")
        config.speculation = "auto";
    return config;
}

/// Takes "draft_model" out of the properties.
std::optional<DraftModel> take_draft_model(ov::AnyMap& properties) {
    const auto found = properties.find("draft_model");
    if (found == properties.end()) return std::nullopt;
    const bool is_path = found->second.is<std::string>();
    check_argument(is_path || found->second.is<DraftModel>(), ParameterName("draft_model"),
                   " has type ", found->second.type_info().name(),
                   "; allowed: what draft_model() gives, or a model's path");
    check_argument(!is_on(properties, "prompt_lookup"), ParameterName("prompt_lookup"),
                   " is true and draft_model is set; allowed: one of them");
    DraftModel draft = is_path ? DraftModel{found->second.as<std::string>(), {}, {}}
                               : found->second.as<DraftModel>();
    for (const char* name : {"scheduler_config", "draft_model", "prompt_lookup"})
        check_argument(draft.properties.count(name) == 0, ParameterName(name),
                       " is a property of a draft model; allowed: the pipeline's");
    properties.erase(found);
    return draft;
}

/// Null where both have the same tokens.
std::shared_ptr<const VocabularyMaps> vocabulary_maps(const Tokenizer& tokenizer,
                                                      const Tokenizer& drafts) {
    const std::vector<std::string> ours = tokenizer.get_vocab_vector();
    std::vector<std::string> theirs = drafts.get_vocab_vector();
    // Padding at the end differs between models of one family.
    const auto both = ptrdiff_t(std::min(ours.size(), theirs.size()));
    if (std::equal(ours.begin(), ours.begin() + both, theirs.begin())) return nullptr;
    // The first and the last token of texts have other names elsewhere.
    for (const auto id : {&Tokenizer::get_bos_token_id, &Tokenizer::get_eos_token_id}) {
        const auto our = size_t((tokenizer.*id)()), their = size_t((drafts.*id)());
        if (our < ours.size() && their < theirs.size()) theirs[their] = ours[our];
    }
    return std::make_shared<VocabularyMaps>(ours, theirs);
}

/// "enable_save_ov_model" leaves what a .gguf file became beside it.
ModelFolder open_model(const std::filesystem::path& model, const ov::AnyMap& properties) {
    return ModelFolder(model, is_on(properties, "enable_save_ov_model"));
}

}  // namespace

/// What the constructor waits for.
struct ContinuousBatchingPipeline::Impl::Loaded {
    Loaded(const ModelFolder& opened, const Tokenizer* given, const std::string& device,
           ov::AnyMap properties, const SchedulerConfig& scheduler)
        : folder(opened) {
        const std::optional<DraftModel> draft = take_draft_model(properties);
        const bool has_head = scheduler.speculation == "mtp";
        check_argument(!has_head || !draft, ParameterName("draft_model"),
                       " is set and speculation is 'mtp'; allowed: one of them");
        // Before anything is compiled: it throws where there is none.
        std::optional<ModelFolder> head, drafting;
        if (has_head) head = drafting = folder.head();
        if (draft) drafting = ModelFolder(draft->path);
        const bool is_eagle3 = draft && drafting->read_config().is_eagle3;
        if (is_eagle3) head = drafting;
        // Reading the tokenizer overlaps with compiling the model.
        auto reading =
            given ? std::future<Tokenizer>()
                  : std::async(std::launch::async, [&] { return Tokenizer(folder.path()); });
        model =
            load_model(folder, device, properties,
                       scheduler.use_cache_eviction ? &scheduler.cache_eviction_config : nullptr,
                       head ? &*head : nullptr);
        tokenizer.emplace(given ? *given : reading.get());
        if (!drafting) return;
        if (!head) maps = vocabulary_maps(*tokenizer, Tokenizer(drafting->path()));
        const DraftModel own = draft.value_or(DraftModel());
        draft_model = load_model(*drafting, own.device.empty() ? device : own.device,
                                 own.properties.empty() ? properties : own.properties,
                                 /*eviction=*/nullptr, is_eagle3 ? &folder : nullptr);
        draft_context_length = drafting->read_config().max_position_embeddings;
    }

    Clock::time_point begin = Clock::now();
    ModelFolder folder;
    std::unique_ptr<Model> model, draft_model;
    size_t draft_context_length = 0;
    std::shared_ptr<const VocabularyMaps> maps;
    std::optional<Tokenizer> tokenizer;
};

ContinuousBatchingPipeline::Impl::Impl(const ModelFolder& folder, const Tokenizer* given_tokenizer,
                                       const SchedulerConfig& scheduler_config,
                                       const std::string& device, const ov::AnyMap& properties)
    : Impl(Loaded(folder, given_tokenizer, device, properties, scheduler_config),
           with_lookup(scheduler_config, properties)) {}

ContinuousBatchingPipeline::Impl::Impl(Loaded&& loaded, const SchedulerConfig& scheduler_config)
    : tokenizer(*loaded.tokenizer), default_config(default_config_of(loaded.folder, tokenizer)) {
    EngineParts parts;
    parts.model = std::move(loaded.model);
    parts.context_length = loaded.folder.read_config().max_position_embeddings;
    parts.draft_model = std::move(loaded.draft_model);
    m_has_draft_model = parts.draft_model != nullptr;
    parts.draft_context_length = loaded.draft_context_length;
    parts.vocabulary_maps = std::move(loaded.maps);
    parts.decoders = decoders_of(tokenizer);
    parts.encode = [tokenizer = tokenizer](const std::string& text) {
        return tokenizer.encode(text, /*add_special_tokens=*/false);
    };
    const auto rules = std::make_shared<TextRules>(tokenizer);
    parts.find_rules = [rules](const GenerationConfig& config) { return rules->of(config); };
    parts.compile_grammar = [rules](const GenerationConfig& config) {
        return rules->grammar_of(config);
    };
    m_engine = std::make_shared<Engine>(std::move(parts), scheduler_config);
    m_engine->request_queue().set_step([engine = std::weak_ptr(m_engine)] {
        const auto alive = engine.lock();
        if (alive) alive->step();
        return alive != nullptr;
    });
    m_engine_thread = std::make_unique<EngineThread>(m_engine);
    m_load_time = microseconds_since(loaded.begin) / 1000;
}

GenerationConfig with_stops_of(const GenerationConfig& model, GenerationConfig config) {
    if (config.eos_token_id != -1) return config;
    config.eos_token_id = model.eos_token_id;
    config.stop_token_ids.insert(model.stop_token_ids.begin(), model.stop_token_ids.end());
    return config;
}

std::shared_ptr<GenerationHandle::State> ContinuousBatchingPipeline::Impl::submit(
    std::optional<uint64_t> id, const std::vector<int64_t>& prompt,
    const GenerationConfig& config) {
    if (config.eos_token_id != -1) return m_engine->submit(id, prompt, config);  // without a copy
    return m_engine->submit(id, prompt, with_stops_of(default_config, config));
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::Impl::add_request(
    uint64_t id, const std::vector<int64_t>& prompt, const GenerationConfig& config) {
    const auto state = submit(id, prompt, config);
    const auto drop = [state](GenerationHandle* handle) {
        delete handle;
        if (state->queue->is_forked()) return;
        GenerationHandle::State::close(state, GenerationStatus::CANCEL,
                                       GenerationFinishReason::NONE);
    };
    return {new GenerationHandle(state), drop};
}

void ContinuousBatchingPipeline::Impl::set_step_hook(std::function<void()> hook) {
    const std::lock_guard lock(m_hook_mutex);
    m_step_hook.swap(hook);  // the old one is destroyed without the lock
}

TextPrompt ContinuousBatchingPipeline::Impl::render(const ChatHistory& history,
                                                    PerfMetrics& metrics) const {
    return timed(metrics.raw_metrics.chat_template_durations, [&] {
        return TextPrompt{tokenizer.apply_chat_template(history, /*add_generation_prompt=*/true),
                          /*add_special_tokens=*/false};
    });
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
    m_impl = make_shared_in_process<Impl>(open_model(model_folder, properties), nullptr,
                                          scheduler_config, device, properties);
}

ContinuousBatchingPipeline::ContinuousBatchingPipeline(const std::filesystem::path& model_folder,
                                                       const Tokenizer& tokenizer,
                                                       const SchedulerConfig& scheduler_config,
                                                       const std::string& device,
                                                       const ov::AnyMap& properties) {
    scheduler_config.validate();
    m_impl = make_shared_in_process<Impl>(open_model(model_folder, properties), &tokenizer,
                                          scheduler_config, device, properties);
}

ContinuousBatchingPipeline::ContinuousBatchingPipeline(const std::string& model,
                                                       const ov::Tensor& weights,
                                                       const Tokenizer& tokenizer,
                                                       const SchedulerConfig& scheduler_config,
                                                       const std::string& device,
                                                       const ov::AnyMap& properties) {
    scheduler_config.validate();
    m_impl = make_shared_in_process<Impl>(ModelFolder(GraphBuffers{model, weights}), &tokenizer,
                                          scheduler_config, device, properties);
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

CacheView ContinuousBatchingPipeline::get_cache_view(
    size_t max_sequences, std::optional<uint64_t> evicted_request) const {
    return m_impl->engine().view_cache(max_sequences, evicted_request);
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const std::vector<int64_t>& prompt, const GenerationConfig& config) {
    return m_impl->add_request(request_id, prompt, config);
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const std::string& prompt, const GenerationConfig& config) {
    return m_impl->add_request(request_id, m_impl->tokenizer.encode(prompt), config);
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const ov::Tensor& prompt, const GenerationConfig& config) {
    return m_impl->add_request(request_id, prompt_of(prompt), config);
}

std::shared_ptr<GenerationHandle> ContinuousBatchingPipeline::add_request(
    uint64_t request_id, const std::string& prompt, const ov::AnyMap& properties) {
    GenerationConfig config = get_config();
    set_properties(config, properties);
    return add_request(request_id, prompt, config);
}

void ContinuousBatchingPipeline::step() {
    const auto impl = m_impl;  // a callback may drop the pipeline
    impl->engine().step();
}
bool ContinuousBatchingPipeline::has_non_finished_requests() const {
    return m_impl->engine().has_work();
}

void ContinuousBatchingPipeline::start() {
    m_impl->engine_thread().start();
}
void ContinuousBatchingPipeline::stop() {
    m_impl->engine_thread().stop();
}
void ContinuousBatchingPipeline::wait_for_stopped(std::chrono::milliseconds at_most) {
    EngineThread::wait_for_stopped(at_most);
}

std::vector<EncodedGenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<std::vector<int64_t>>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;  // a callback may drop the pipeline, here and below
    return impl->generate(prompts, configs, streamer);
}

std::vector<EncodedGenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<ov::Tensor>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    std::vector<std::vector<int64_t>> tokens;
    for (const ov::Tensor& prompt : prompts) tokens.push_back(prompt_of(prompt));
    return generate(tokens, configs, streamer);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<std::string>& prompts, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;
    PerfMetrics metrics;
    if (impl->chat.is_open()) {
        check_argument(prompts.size() == 1, ParameterName("prompts", ""),
                       "a chat takes one text at a time, got a list of ", prompts.size());
        ChatSession::Turn turn(impl->chat, prompts.front());
        auto results = impl->generate_text({impl->render(turn.history(), metrics)}, configs,
                                           streamer, metrics);
        if (results.front().m_status != GenerationStatus::CANCEL)
            turn.remember(results.front().m_generation_ids.front());
        return results;
    }
    const bool has_template = !impl->tokenizer.get_chat_template().empty();
    check_configs(configs, prompts.size());
    std::vector<TextPrompt> texts;
    for (size_t i = 0; i < prompts.size(); ++i) {
        if (!has_template || !config_of(configs, i).apply_chat_template) {
            texts.push_back({prompts[i], true});
            continue;
        }
        ChatHistory history;
        history.append("user", prompts[i]);
        texts.push_back(impl->render(history, metrics));
    }
    return impl->generate_text(texts, configs, streamer, metrics);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<ChatHistory>& histories, const std::vector<GenerationConfig>& configs,
    const StreamerVariant& streamer) {
    const auto impl = m_impl;
    PerfMetrics metrics;
    std::vector<TextPrompt> prompts;
    for (const ChatHistory& history : histories) prompts.push_back(impl->render(history, metrics));
    return impl->generate_text(prompts, configs, streamer, metrics);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<std::string>& prompts, const ov::AnyMap& properties) {
    const auto read = read_generate_properties(get_config(), properties);
    return generate(prompts, read.configs, read.streamer);
}

std::vector<GenerationResult> ContinuousBatchingPipeline::generate(
    const std::vector<ChatHistory>& histories, const ov::AnyMap& properties) {
    const auto read = read_generate_properties(get_config(), properties);
    return generate(histories, read.configs, read.streamer);
}

void ContinuousBatchingPipeline::start_chat(const std::string& system_message) {
    m_impl->chat.start(system_message);
}
void ContinuousBatchingPipeline::finish_chat() {
    m_impl->chat.finish();
}

void ContinuousBatchingPipeline::set_step_hook(std::function<void()> hook) {
    m_impl->set_step_hook(std::move(hook));
}

}  // namespace pagewheel
