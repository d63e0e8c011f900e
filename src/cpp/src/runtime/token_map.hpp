// Tokens of one vocabulary as tokens of another, by their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pagewheel {

/// Each token's bytes are written in tokens of the other vocabulary, the longest first. That is
/// what a tokenizer does for most texts, but not for all.
class TokenMap {
public:
    /// Both vocabularies are bytes by id.
    TokenMap(const std::vector<std::string>& from, const std::vector<std::string>& to);

    /// The other vocabulary's token that the token's bytes begin with; -1: there is none.
    int64_t first_of(int64_t token) const;
    /// Appends the other vocabulary's tokens, at least one: token 0 stands for unknown bytes.
    void append(int64_t token, std::vector<int64_t>& tokens) const;

private:
    struct Range {
        size_t begin, end;
    };
    Range range_of(int64_t token) const;

    std::vector<int64_t> m_tokens;  // of all tokens, one after the other
    std::vector<size_t> m_ends;     // of each one's
};

/// Of a model and a draft model with another vocabulary.
struct VocabularyMaps {
    VocabularyMaps(const std::vector<std::string>& model,
                   const std::vector<std::string>& draft_model)
        : to_draft_model(model, draft_model), to_model(draft_model, model) {}

    TokenMap to_draft_model, to_model;
};

}  // namespace pagewheel
