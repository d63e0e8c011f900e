// Constant texts of a grammar, in which a model's special tokens may stand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pagewheel {

/// Text, or one special token.
struct ConstantPart {
    std::string text;
    int64_t token = -1;  ///< -1: it is text
};

/// At least one part. Where several special tokens begin, the longest is taken. `special_tokens`
/// are texts with their ids.
std::vector<ConstantPart> split_at_special_tokens(
    const std::string& text, const std::vector<std::pair<std::string, int64_t>>& special_tokens);

}  // namespace pagewheel
