// What the texts of a GenerationConfig are in a model's tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "pagewheel/tokenizer.hpp"
#include "sampling/logits_chain.hpp"

namespace pagewheel {

/// A tokenizer of several texts at once, without special tokens.
using Encode =
    std::function<std::vector<std::vector<int64_t>>(const std::vector<std::string>& texts)>;

/// How the words are written: with and without a space before each.
std::vector<std::vector<int64_t>> word_tokens(const Encode& encode,
                                              const std::vector<std::string>& words);

/// Any thread may ask.
class TextRules {
public:
    explicit TextRules(Tokenizer tokenizer) : m_tokenizer(std::move(tokenizer)) {}

    TokenRules of(const GenerationConfig& config);
    /// The grammar of structured_output_config. Throws GrammarError.
    std::shared_ptr<const SequenceGrammar> grammar_of(const GenerationConfig& config) const;

private:
    TokenSequences find_bad_words(const std::set<std::string>& words);

    const Tokenizer m_tokenizer;
    std::mutex m_mutex;  // guards what follows: the latest words, which most often come again
    std::set<std::string> m_words;
    TokenSequences m_found;
};

}  // namespace pagewheel
