#include "sampling/logits_chain.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "kernels/logits.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {

const std::string& SequenceBreakers::bytes(int64_t token) const {
    static const std::string none;
    return size_t(token) < vocabulary->size() ? (*vocabulary)[size_t(token)] : none;
}

bool SequenceBreakers::is_in(int64_t token) const {
    TextAutomaton::State state = TextAutomaton::start;
    const std::string& own = bytes(token);
    return std::any_of(own.begin(), own.end(), [&](char byte) {
        state = texts.next(state, byte);
        return texts.shortest_match(state) > 0;
    });
}

TokenLists::TokenLists(const GenerationConfig& config, const TokenSequences& bad_words)
    : biases(config.logit_bias.begin(), config.logit_bias.end()),
      allowed(config.allowed_token_ids.begin(), config.allowed_token_ids.end()),
      suppressed(config.suppress_tokens.begin(), config.suppress_tokens.end()),
      banned(config.bad_words_ids) {
    std::set<int64_t> stops = config.stop_token_ids;
    stops.insert(config.eos_token_id);  // or -1, which no row has
    stop.assign(stops.begin(), stops.end());
    banned.insert(banned.end(), bad_words.begin(), bad_words.end());
    std::stable_sort(banned.begin(), banned.end(),
                     [](const auto& a, const auto& b) { return before_last(a) < before_last(b); });
}

std::shared_ptr<const TokenLists> token_lists(const GenerationConfig& config,
                                              const TokenRules& rules) {
    return rules.lists ? rules.lists : std::make_shared<const TokenLists>(config, rules.bad_words);
}

namespace {

LogitsError processor_error(const std::string& message) {
    return LogitsError(message, ErrorCode::processor_failed, "logits_processors");
}

/// Gives what `work` gives. What it throws becomes a LogitsError.
template <class Work>
auto attempt(Work&& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        throw processor_error(concat("a logits processor failed: ", error.what()));
    } catch (...) {
        throw processor_error("a logits processor failed: what it threw is no std::exception");
    }
}

}  // namespace

std::unique_ptr<LogitsProcessor> CustomProcessor::fork_of(const LogitsProcessor& given) {
    auto own = attempt([&] { return given.fork(); });
    if (!own) throw processor_error("a logits processor failed: its fork() gave none");
    return std::unique_ptr<LogitsProcessor>(new CustomProcessor(std::move(own)));
}

void CustomProcessor::process(const LogitsRow& row, const TokenHistory& history) {
    attempt([&] { m_own->process(row, history); });
    const size_t token = kernels::logits_kernels(detected_isa()).argmax(row.logits, row.size);
    const float logit = row.logits[token];
    if (std::isnan(logit) || (std::isinf(logit) && logit > 0))
        throw processor_error(concat("a logits processor left a logit of ", logit, " for token ",
                                     token,
                                     "; allowed: finite numbers, and minus infinity to ban it"));
}

const std::vector<ProcessorKind>& logits_processors() {
    static const std::vector<ProcessorKind> table{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help) \
    {#name, &make_##name, true},
#define PAGEWHEEL_PENALTY(type, name, initial, condition, allowed, help) \
    {#name, &make_##name, false},
#define PAGEWHEEL_FILTER PAGEWHEEL_PARAMETER
#include "pagewheel/generation_parameters.def"
    };
    return table;
}

LogitsChain::LogitsChain(const GenerationConfig& config, const TokenRules& rules) {
    if (rules.grammar) m_grammar = rules.grammar->fork();
    for (const ProcessorKind& kind : logits_processors())
        if (auto processor = kind.make(config, rules)) m_processors.push_back(std::move(processor));
    for (const auto& given : config.logits_processors)
        m_processors.push_back(CustomProcessor::fork_of(*given));
}

void LogitsChain::process(const LogitsRow& row, const TokenHistory& history) {
    if (m_grammar) apply_grammar(row, history);
    for (const auto& processor : m_processors) processor->process(row, history);
}

void LogitsChain::apply_grammar(const LogitsRow& row, const TokenHistory& history) {
    m_grammar->follow(history);
    const std::vector<uint32_t>& mask = m_grammar->mask();
    const size_t known = std::min(row.size, mask.size() * 32);
    kernels::logits_kernels(detected_isa()).ban_unset(row.logits, mask.data(), known);
    // A model may have logits for more tokens than its tokenizer knows.
    std::fill(row.logits + known, row.logits + row.size, -std::numeric_limits<float>::infinity());
}

LogitsChain LogitsChain::fork() const {
    LogitsChain chain;
    if (m_grammar) chain.m_grammar = m_grammar->fork();
    for (const auto& processor : m_processors) chain.m_processors.push_back(processor->fork());
    return chain;
}

bool LogitsChain::runs_anywhere() const {
    return std::all_of(m_processors.begin(), m_processors.end(),
                       [](const auto& processor) { return processor->runs_anywhere(); });
}

}  // namespace pagewheel
