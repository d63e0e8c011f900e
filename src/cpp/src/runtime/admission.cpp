#include "runtime/admission.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "kernels/isa.hpp"
#include "pagewheel/errors.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {
namespace {

/// Parameters that each request has of its own: PreparedConfig is without them.
constexpr bool is_own(std::string_view parameter) {
    return parameter == "timeout" || parameter == "rng_seed" || parameter == "priority" ||
           parameter == "cache_salt" || parameter == "prediction";
}

/// Whether requests with these may share a PreparedConfig.
bool is_same(const GenerationConfig& a, const GenerationConfig& b) {
    return
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    (is_own(#name) || a.name == b.name) &&
#include "pagewheel/generation_parameters.def"
        a.logits_processors == b.logits_processors;
}

/// A copy without what each request has of its own.
GenerationConfig shared_part(const GenerationConfig& config) {
    GenerationConfig shared = config;
    const GenerationConfig defaults;
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    if (is_own(#name)) shared.name = defaults.name;
#include "pagewheel/generation_parameters.def"
    shared.structured_output_config.reset();
    shared.parsers.clear();  // which the engine has no use for, and would end on any thread
    return shared;
}

Clock::time_point deadline(Clock::time_point arrival, float timeout) {
    const std::chrono::duration<double> wait(timeout);
    return arrival + (wait < longest_wait ? std::chrono::duration_cast<Clock::duration>(wait)
                                          : Clock::duration(longest_wait));
}

/// Whether nothing but the grammar could forbid a token, look at it, or be asked about it.
bool allows_jump_forward(const GenerationConfig& config, const TokenRules& rules) {
    const auto& all = logits_processors();
    return !config.is_beam_search() && config.logprobs == 0 && config.mirostat == 0 &&
           config.logits_processors.empty() &&
           std::none_of(config.logit_bias.begin(), config.logit_bias.end(),
                        [](const auto& bias) { return std::isinf(bias.second); }) &&
           std::none_of(all.begin(), all.end(), [&](const ProcessorKind& kind) {
               return kind.bans && kind.make(config, rules) != nullptr;
           });
}

/// Calls `check` for each token id in a parameter of any type.
template <class T, class Check>
void check_ids(const T& given, const Check& check) {
    if constexpr (std::is_same_v<T, int64_t>)
        check(given);
    else if constexpr (std::is_same_v<T, TokenBiases>)
        for (const auto& [id, bias] : given) check(id);
    else if constexpr (!std::is_arithmetic_v<T>)
        for (const auto& each : given) check_ids(each, check);
}

bool names_texts(const GenerationConfig& config) {
    return !config.bad_words.empty() || config.dry_multiplier > 0;
}

}  // namespace

std::shared_ptr<const PreparedConfig> Admission::prepare(const GenerationConfig& config) {
    std::unique_lock lock(m_mutex);
    const auto latest = m_latest;
    lock.unlock();  // what is found may end here, and processors of the caller's with it
    std::shared_ptr<const PreparedConfig> like;  // has the same stop strings
    for (const auto& weak : latest) {
        auto prepared = weak.lock();
        if (!prepared) continue;
        if (is_same(prepared->config, config)) return prepared;
        if (prepared->config.stop_strings == config.stop_strings) like = std::move(prepared);
    }
    check_token_ids(config);
    const auto made = std::make_shared<PreparedConfig>();
    if (names_texts(config)) made->rules = m_find_rules(config);
    made->rules.lists = token_lists(config, made->rules);
    made->rules.bad_words = {};  // the lists have them
    made->stop_strings = StopStrings(config, like ? &like->stop_strings : nullptr);
    made->config = shared_part(config);
    lock.lock();
    m_latest[m_next++ % m_latest.size()] = made;
    return made;
}

std::unique_ptr<Request> Admission::make_request(std::optional<uint64_t> id,
                                                 const std::vector<int64_t>& prompt,
                                                 const GenerationConfig& given,
                                                 std::shared_ptr<RequestQueue> queue,
                                                 Clock::time_point arrival) {
    if (eviction_of(given))  // a sequence need not end
        given.validate_values();
    else
        given.validate();
    check_argument(given.num_beams <= m_limits.max_num_seqs, ParameterName("num_beams"), " is ",
                   given.num_beams, "; allowed: up to max_num_seqs, which is ",
                   m_limits.max_num_seqs);
    check_prompt(prompt, given);
    auto request = std::make_unique<Request>();
    request->id = id;
    request->arrival = arrival;
    request->state = std::make_shared<GenerationHandle::State>();
    if (given.structured_output_config) compile_grammar(*request, given);
    if (given.timeout) request->deadline = deadline(request->arrival, *given.timeout);
    request->rng_seed = given.rng_seed;
    request->priority = given.priority;
    request->cache_salt = given.cache_salt;
    if (!given.prediction.empty()) request->prediction = m_encode(given.prediction);
    request->prepared = prepare(given);
    const GenerationConfig& config = request->config();
    request->rules.breakers = request->prepared->rules.breakers;
    request->rules.lists = request->prepared->rules.lists;
    // What is evicted may depend on the attention of every token.
    request->rules.appends_jump_forward = request->rules.grammar && !eviction_of(config) &&
                                          allows_jump_forward(config, request->rules);
    request->max_tokens = max_tokens(prompt.size(), config);
    request->state->outputs.resize(config.num_return_sequences);
    request->state->texts = make_texts(*request, config.num_return_sequences);
    if (config.logprobs > 0) request->state->token_bytes = m_decoders.bytes;
    request->state->metrics.num_input_tokens = prompt.size();
    request->state->queue = std::move(queue);
    request->state->request = request.get();
    try {
        request->chain = LogitsChain(config, request->rules);
        request->sequences.push_back(make_sequence(*request, 0, prompt));
    } catch (const LogitsError& error) {  // a processor of the caller's does not fork
        throw Error(error.what(), error.code(), error.parameter());
    }
    return request;
}

void Admission::compile_grammar(Request& request, const GenerationConfig& config) const {
    const auto begin = Clock::now();
    request.rules.grammar = m_compile_grammar(config);
    request.state->metrics.raw_metrics.grammar_compile_times.push_back(microseconds_since(begin));
}

void Admission::check_token_ids(const GenerationConfig& config) const {
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help)                   \
    check_ids(config.name, [&](int64_t id) {                                                 \
        check_argument(id >= 0 && size_t(id) < m_limits.vocabulary, ParameterName(#name),    \
                       " has token id ", id, ", outside of [0, ", m_limits.vocabulary, ")"); \
    });
#define PAGEWHEEL_FILTER PAGEWHEEL_PARAMETER
#include "pagewheel/generation_parameters.def"
}

void Admission::check_prompt(const std::vector<int64_t>& prompt,
                             const GenerationConfig& config) const {
    check_argument(!prompt.empty(), ParameterName("prompt", "the prompt"),
                   " is empty: at least one token is needed");
    for (int64_t token : prompt)
        check_argument(token >= 0 && size_t(token) < m_limits.vocabulary,
                       ParameterName("prompt", "the prompt"), " has token id ", token,
                       ", outside of [0, ", m_limits.vocabulary, ")");
    // A prompt that is only scored may fill it.
    const size_t least_new = config.max_new_tokens == 0 ? 0 : 1;
    const auto check_fits = [&](size_t limit, const char* what, const char* advice) {
        check_argument(prompt.size() + least_new <= limit, ErrorCode::context_too_long,
                       ParameterName("prompt", "the prompt"), " has ", prompt.size(), " tokens; ",
                       what, " ", limit,
                       least_new == 0 ? "" : ", of which at least one is to be generated", advice);
    };
    const bool evicts = eviction_of(config) != nullptr;
    const char* longer = evicts ? "; with evict_during_prefill it may be longer" : "";
    if (m_limits.context_length != 0 && !evicts_prompt(config))
        check_fits(m_limits.context_length, "the model's context holds", longer);
    // With eviction a block is spare, for copies of shared ones.
    const size_t spare = evicts ? m_limits.block_size : 0;
    if (!evicts_prompt(config))
        check_fits(
            m_room - spare, "the KV cache holds",
            evicts ? longer : "; cache_size, num_kv_blocks or memory_fraction sets how many");
    if (config.max_new_tokens == GenerationConfig::unlimited)
        check_fits(config.max_length, "max_length is", "");
}

size_t Admission::max_tokens(size_t prompt_length, const GenerationConfig& config) const {
    // With eviction a sequence that is told where to end may outgrow the cache and the context.
    const bool evicts = eviction_of(config) != nullptr;
    const bool endless = evicts && (config.max_new_tokens != GenerationConfig::unlimited ||
                                    config.max_length != GenerationConfig::unlimited);
    size_t limit = evicts ? GenerationConfig::unlimited : m_room.load();
    if (!endless && m_limits.context_length != 0) limit = std::min(limit, m_limits.context_length);
    if (config.max_new_tokens == GenerationConfig::unlimited)
        return std::min(limit, config.max_length);
    return config.max_new_tokens < limit - prompt_length ? prompt_length + config.max_new_tokens
                                                         : limit;
}

std::unique_ptr<SequenceState> Admission::make_sequence(Request& request, size_t index,
                                                        const std::vector<int64_t>& prompt) const {
    const GenerationConfig& config = request.config();
    auto made = std::make_unique<SequenceState>(
        &request, index, Sampler(config, request.rng_seed, index, detected_isa(), request.chain));
    SequenceState& sequence = *made;
    if (config.is_beam_search() && !config.stop_strings.empty())
        sequence.beam_text.emplace(decoders(config), request.prepared->stop_strings);
    sequence.tokens = prompt;
    sequence.prompt_length = prompt.size();
    sequence.wants_prompt_logits = config.echo && config.logprobs > 0 && index == 0;
    sequence.priority = request.priority;
    sequence.prefix_key.salt = request.cache_salt;
    sequence.eviction = &sequence.eviction_state;
    if (eviction_of(config)) m_eviction->admit(sequence, request.max_tokens);
    return made;
}

GeneratedText::Decoders Admission::decoders(const GenerationConfig& config) const {
    if (config.skip_special_tokens) return m_decoders;
    return {m_decoders.verbatim, m_decoders.verbatim, m_decoders.bytes};
}

std::vector<SequenceText> Admission::make_texts(const Request& request, size_t count) const {
    return std::vector<SequenceText>(
        count, SequenceText(decoders(request.config()), request.prepared->stop_strings));
}

std::optional<Error> Admission::limit_again(Request& request) const {
    const size_t room = m_room, prompt_length = request.sequences.front()->prompt_length;
    // With eviction a sequence may outgrow the cache.
    if (!eviction_of(request.config())) request.max_tokens = std::min(request.max_tokens, room);
    const size_t least_new = request.config().max_new_tokens == 0 ? 0 : 1;
    if (prompt_length + least_new <= room || evicts_prompt(request.config())) return std::nullopt;
    return Error(
        concat("the request was cancelled: its prompt has ", prompt_length,
               " tokens, and since it was submitted pinned prefixes have left room for ", room),
        ErrorCode::context_too_long, "prompt");
}

}  // namespace pagewheel
