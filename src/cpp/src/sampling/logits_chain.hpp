// The logits processors of a sequence, as its GenerationConfig asks for them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text_automaton.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/logits_processor.hpp"
#include "sampling/sequence_grammar.hpp"

namespace pagewheel {

using ProcessorPtr = std::unique_ptr<LogitsProcessor>;

/// A processor that is a function and what it captures. Its fork has a copy.
template <class Function>
class FunctionProcessor final : public LogitsProcessor {
public:
    explicit FunctionProcessor(Function function) : m_function(std::move(function)) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        m_function(row, history);
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<FunctionProcessor>(*this);
    }
    bool runs_anywhere() const override { return true; }

private:
    Function m_function;
};

template <class Function>
ProcessorPtr make_processor(Function function) {
    return std::make_unique<FunctionProcessor<Function>>(std::move(function));
}

/// DRY's dry_sequence_breakers. They are looked for in the text of the tokens, whatever the tokens'
/// boundaries.
struct SequenceBreakers {
    TextAutomaton texts;
    std::shared_ptr<const std::vector<std::string>> vocabulary;  ///< bytes by token

    /// The bytes of a token; none where it has no text.
    const std::string& bytes(int64_t token) const;
    /// Whether the token's own text has all of a breaker.
    bool is_in(int64_t token) const;
};

/// The lists of tokens that a config names.
struct TokenLists {
    /// `bad_words` are the tokens of the config's.
    TokenLists(const GenerationConfig& config, const TokenSequences& bad_words);

    std::vector<std::pair<int64_t, float>> biases;   // logit_bias
    std::vector<int64_t> allowed, suppressed, stop;  // ascending
    TokenSequences banned;  // bad_words_ids and bad_words, by the token before the last
};

/// Made by whoever has the tokenizer. Empty where the config names no texts and no grammar.
struct TokenRules {
    TokenSequences bad_words;                               ///< the tokens of bad_words
    std::shared_ptr<const SequenceBreakers> breakers = {};  ///< of dry_sequence_breakers
    std::shared_ptr<const SequenceGrammar> grammar =
        {};  ///< at its beginning; sequences have forks
    /// What the grammar forces is appended at once, and the model gives no logits for it.
    bool appends_jump_forward = false;
    /// The lists of the config and of bad_words, made once for all requests with the config.
    std::shared_ptr<const TokenLists> lists = {};
};

/// The lists of the rules; new ones if they have none.
std::shared_ptr<const TokenLists> token_lists(const GenerationConfig& config,
                                              const TokenRules& rules);

/// The token before the last of a sequence; -1 where there is a single token.
inline int64_t before_last(const std::vector<int64_t>& sequence) {
    return sequence.size() < 2 ? -1 : *(sequence.end() - 2);
}

// make_<name>(config, rules) for each processor in the table of parameters; nullptr where the
// config does not ask for it.
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)
#define PAGEWHEEL_PROCESSOR(type, name, initial, condition, allowed, help) \
    ProcessorPtr make_##name(const GenerationConfig& config, const TokenRules& rules = {});
#define PAGEWHEEL_FILTER PAGEWHEEL_PARAMETER
#include "pagewheel/generation_parameters.def"

struct ProcessorKind {
    std::string parameter;  ///< of GenerationConfig
    ProcessorPtr (*make)(const GenerationConfig&, const TokenRules&);
    bool bans;  ///< tokens, whatever their logits
};

/// All there are, in the order in which they are applied.
const std::vector<ProcessorKind>& logits_processors();

/// Empty by default. A grammar comes first, the caller's own processors come last.
class LogitsChain {
public:
    LogitsChain() = default;
    explicit LogitsChain(const GenerationConfig& config, const TokenRules& rules = {});
    /// Applies each of them in turn. Throws LogitsError where one of the caller's fails, and
    /// GrammarEnd.
    void process(const LogitsRow& row, const TokenHistory& history);
    /// The grammar; null where there is none.
    const std::shared_ptr<SequenceGrammar>& grammar() const { return m_grammar; }
    LogitsChain fork() const;
    /// Whether all of them do (LogitsProcessor::runs_anywhere).
    bool runs_anywhere() const;

private:
    void apply_grammar(const LogitsRow& row, const TokenHistory& history);

    std::shared_ptr<SequenceGrammar> m_grammar;  // shared with who works ahead
    std::vector<std::unique_ptr<LogitsProcessor>> m_processors;
};

/// Whatever the processor within throws is a LogitsError, and so are logits that it leaves and no
/// token can be chosen by.
class CustomProcessor final : public LogitsProcessor {
public:
    static std::unique_ptr<LogitsProcessor> fork_of(const LogitsProcessor& given);

    void process(const LogitsRow& row, const TokenHistory& history) override;
    std::unique_ptr<LogitsProcessor> fork() const override { return fork_of(*m_own); }
    bool runs_anywhere() const override { return m_own->runs_anywhere(); }

private:
    explicit CustomProcessor(std::unique_ptr<LogitsProcessor> own) : m_own(std::move(own)) {}

    std::unique_ptr<LogitsProcessor> m_own;
};

}  // namespace pagewheel
