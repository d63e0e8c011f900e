#include "sampling/logits_chain.hpp"

#include <utility>

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

LogitsChain::LogitsChain(const GenerationConfig& config) {
    for (const ProcessorKind& kind : logits_processors())
        if (auto processor = kind.make(config)) m_processors.push_back(std::move(processor));
}

void LogitsChain::process(const LogitsRow& row, const TokenHistory& history) {
    for (const auto& processor : m_processors) processor->process(row, history);
}

LogitsChain LogitsChain::fork() const {
    LogitsChain chain;
    for (const auto& processor : m_processors) chain.m_processors.push_back(processor->fork());
    return chain;
}

}  // namespace pagewheel
