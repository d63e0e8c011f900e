// The logits processors of a sequence, as its GenerationConfig asks for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/logits_processor.hpp"

namespace pagewheel {

// make_<name>(config) for each processor in the table of parameters; nullptr where the config does
// not ask for it. Each is defined in a file of its own.
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help) \
    std::unique_ptr<LogitsProcessor> make_##name(const GenerationConfig& config);
#define PAGEWHEEL_FILTER PAGEWHEEL_PARAMETER
#include "pagewheel/generation_parameters.def"

struct ProcessorKind {
    std::string parameter;  ///< of GenerationConfig
    std::unique_ptr<LogitsProcessor> (*make)(const GenerationConfig&);
};

/// All there are, in the order in which they are applied.
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
