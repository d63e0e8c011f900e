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
    /// What was found for the latest texts. It takes the tokenizer about a millisecond for each,
    /// and they are nearly always the same.
    template <class Found>
    class Latest {
    public:
        template <class Find>
        Found of(const std::set<std::string>& texts, const Find& find) {
            const std::lock_guard lock(m_mutex);
            if (m_texts != texts) {
                m_found = find(texts);
                m_texts = texts;
            }
            return m_found;
        }

    private:
        std::mutex m_mutex;  // guards what follows
        std::set<std::string> m_texts;
        Found m_found;
    };

    const Tokenizer m_tokenizer;
    Latest<TokenSequences> m_bad_words;
    Latest<std::shared_ptr<const SequenceBreakers>> m_breakers;
};

}  // namespace pagewheel
