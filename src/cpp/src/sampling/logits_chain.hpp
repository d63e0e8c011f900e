// The logits processors of a sequence, as its GenerationConfig asks for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/logits_processor.hpp"

namespace pagewheel {

struct ProcessorKind {
    std::vector<std::string> parameters;  ///< of GenerationConfig that ask for it
    bool (*is_wanted)(const GenerationConfig&);
    std::unique_ptr<LogitsProcessor> (*make)(const GenerationConfig&);
};

/// All there are, in the order in which they are applied: transformers'.
const std::vector<ProcessorKind>& logits_processors();

/// Empty by default.
class LogitsChain {
public:
    LogitsChain() = default;
    explicit LogitsChain(const GenerationConfig& config);
    /// As LogitsProcessor, each in turn.
    void process(const LogitsRow& row, const TokenHistory& history);
    LogitsChain fork() const;

private:
    std::vector<std::unique_ptr<LogitsProcessor>> m_processors;
};

}  // namespace pagewheel
