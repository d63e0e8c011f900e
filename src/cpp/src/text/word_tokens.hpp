// How texts may stand among generated tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pagewheel {

/// A tokenizer of several texts at once, without special tokens.
using Encode =
    std::function<std::vector<std::vector<int64_t>>(const std::vector<std::string>& texts)>;

/// The tokens that the tokenizer writes each text with inside a longer one, as it stands. What a
/// tokenizer puts before a text is not among them.
std::vector<std::vector<int64_t>> encode_inside(const Encode& encode,
                                                const std::vector<std::string>& texts);

/// How the words are written: with and without a space before each.
std::vector<std::vector<int64_t>> word_tokens(const Encode& encode,
                                              const std::vector<std::string>& words);

}  // namespace pagewheel
