// What a sequence consists of when its next token is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel {

/// A view of a sequence's tokens: the first `prompt_length` are the prompt, the others were
/// generated. All of them stay; what is only proposed is not among them.
struct TokenHistory {
    const std::vector<int64_t>& tokens;
    size_t prompt_length;

    size_t num_generated() const { return tokens.size() - prompt_length; }
};

}  // namespace pagewheel
