#include "sampling/logits_chain.hpp"

#include "sampling/minimum_length.hpp"
#include "sampling/occurrence_penalty.hpp"
#include "sampling/repeated_ngrams.hpp"
#include "sampling/repetition_penalty.hpp"

namespace pagewheel {

using Config = GenerationConfig;
using Processor = std::unique_ptr<LogitsProcessor>;

namespace {

std::vector<int64_t> stop_tokens(const Config& config) {
    std::vector<int64_t> tokens(config.stop_token_ids.begin(), config.stop_token_ids.end());
    if (config.eos_token_id >= 0) tokens.push_back(config.eos_token_id);
    return tokens;
}

}  // namespace

// A new processor, be it a bias or a grammar's mask, is a class and a row
// here. What it needs comes with the config.
const std::vector<ProcessorKind>& logits_processors() {
    static const std::vector<ProcessorKind> table{
        {{"repetition_penalty"},
         [](const Config& c) { return c.repetition_penalty != 1.0f; },
         [](const Config& c) -> Processor {
             return std::make_unique<RepetitionPenalty>(c.repetition_penalty);
         }},
        {{"presence_penalty", "frequency_penalty"},
         [](const Config& c) { return c.presence_penalty != 0.0f || c.frequency_penalty != 0.0f; },
         [](const Config& c) -> Processor {
             return std::make_unique<OccurrencePenalty>(c.presence_penalty, c.frequency_penalty);
         }},
        {{"no_repeat_ngram_size"},
         [](const Config& c) {
             return c.no_repeat_ngram_size != 0 && c.no_repeat_ngram_size != Config::unlimited;
         },
         [](const Config& c) -> Processor {
             return std::make_unique<RepeatedNgrams>(c.no_repeat_ngram_size);
         }},
        {{"min_new_tokens"},
         [](const Config& c) { return c.min_new_tokens > 0; },
         [](const Config& c) -> Processor {
             return std::make_unique<MinimumLength>(c.min_new_tokens, stop_tokens(c));
         }},
    };
    return table;
}

LogitsChain::LogitsChain(const Config& config) {
    for (const ProcessorKind& kind : logits_processors())
        if (kind.is_wanted(config)) m_processors.push_back(kind.make(config));
}

void LogitsChain::process(const LogitsRow& row, const TokenHistory& history) {
    for (const Processor& processor : m_processors) processor->process(row, history);
}

LogitsChain LogitsChain::fork() const {
    LogitsChain chain;
    for (const Processor& processor : m_processors) chain.m_processors.push_back(processor->fork());
    return chain;
}

}  // namespace pagewheel
