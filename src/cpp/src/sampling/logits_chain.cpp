#include "sampling/logits_chain.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/logits.hpp"
#include "sampling/custom_processor.hpp"

namespace pagewheel {

const std::vector<ProcessorKind>& logits_processors() {
    static const std::vector<ProcessorKind> table{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help) {#name, &make_##name},
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
    kernels::ban_unset(row.logits, mask.data(), known, detected_isa());
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
