// A vocabulary as llguidance has it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/grammar.hpp"
#include "grammar/llguidance_api.hpp"

namespace pagewheel::llguidance {

/// A model's vocabulary: made once, shared by all of the model's grammars.
class SharedTokenizer {
public:
    /// Takes a tenth of a second for 49,000 tokens, half of one for 262,000.
    explicit SharedTokenizer(GrammarVocabulary vocabulary);
    ~SharedTokenizer();
    SharedTokenizer(const SharedTokenizer&) = delete;
    SharedTokenizer& operator=(const SharedTokenizer&) = delete;

    const Api& api() const { return m_api; }
    const Tokenizer* handle() const { return m_handle; }
    const GrammarVocabulary& vocabulary() const { return m_vocabulary; }
    bool is_special(int64_t token) const { return m_is_special[size_t(token)]; }
    /// Pairs of tokens with the same bytes. The library sees only one of each.
    const std::vector<std::pair<uint32_t, uint32_t>>& twins() const { return m_twins; }

private:
    void list_texts();
    std::vector<int64_t> tokenize(const std::string& text) const;
    std::vector<int64_t> tokenize_greedily(const std::string& text) const;
    static size_t tokenize_bytes(const void* user, const uint8_t* bytes, size_t byte_count,
                                 uint32_t* tokens, size_t room);

    const Api& m_api;
    const GrammarVocabulary m_vocabulary;
    std::vector<bool> m_is_special;
    std::unordered_map<std::string, uint32_t> m_by_text;  // special tokens are not in it
    size_t m_longest_token = 0;
    std::vector<std::pair<uint32_t, uint32_t>> m_twins;
    // Grammars force the same texts again and again, and a tokenizer's call takes 0.2 ms.
    mutable std::mutex m_mutex;
    mutable std::unordered_map<std::string, std::vector<int64_t>> m_tokenized;
    Tokenizer* m_handle = nullptr;
};

}  // namespace pagewheel::llguidance
