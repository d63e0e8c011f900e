// What the texts of a GenerationConfig are in a model's tokens.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "pagewheel/generation_config.hpp"
#include "pagewheel/tokenizer.hpp"
#include "sampling/token_rules.hpp"

namespace pagewheel {

/// Any thread may ask.
class TextRules {
public:
    explicit TextRules(Tokenizer tokenizer) : m_tokenizer(std::move(tokenizer)) {}

    TokenRules of(const GenerationConfig& config);
    /// The grammar of structured_output_config. Throws GrammarError.
    std::shared_ptr<const GrammarRule> grammar_of(const GenerationConfig& config) const;

private:
    TokenSequences find_bad_words(const std::set<std::string>& words);

    const Tokenizer m_tokenizer;
    std::mutex m_mutex;  // guards what follows: the latest words, which most often come again
    std::set<std::string> m_words;
    TokenSequences m_found;
};

}  // namespace pagewheel
