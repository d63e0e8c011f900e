// The logits processors of a sequence, as its GenerationConfig asks for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "sampling/logits_processor.hpp"
#include "sampling/token_rules.hpp"

namespace pagewheel {

// make_<name>(config, rules) for each processor in the table of parameters; nullptr where the
// config does not ask for it. Each is defined in a file of its own.
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help)       \
    std::unique_ptr<LogitsProcessor> make_##name(const GenerationConfig& config, \
                                                 const TokenRules& rules = {});
#define PAGEWHEEL_FILTER PAGEWHEEL_PARAMETER
#include "pagewheel/generation_parameters.def"

struct ProcessorKind {
    std::string parameter;  ///< of GenerationConfig
    std::unique_ptr<LogitsProcessor> (*make)(const GenerationConfig&, const TokenRules&);
};

/// All there are, in the order in which they are applied.
const std::vector<ProcessorKind>& logits_processors();

/// Empty by default. A grammar comes first, the caller's own processors come last.
class LogitsChain {
public:
    LogitsChain() = default;
    explicit LogitsChain(const GenerationConfig& config, const TokenRules& rules = {});
    /// As LogitsProcessor, each in turn. Throws LogitsError where one of the caller's fails, and
    /// GrammarEnd.
    void process(const LogitsRow& row, const TokenHistory& history);
    /// Null: there is none.
    const std::shared_ptr<GrammarRule>& grammar() const { return m_grammar; }
    LogitsChain fork() const;
    /// Whether all of them do.
    bool runs_anywhere() const;

private:
    void apply_grammar(const LogitsRow& row, const TokenHistory& history);

    std::shared_ptr<GrammarRule> m_grammar;  // shared with who works ahead
    std::vector<std::unique_ptr<LogitsProcessor>> m_processors;
};

}  // namespace pagewheel
