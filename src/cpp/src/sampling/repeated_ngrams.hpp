// What would repeat a sequence of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel {

/// Sets to minus infinity the logits [n] of the tokens after which the last `size` tokens would
/// stand in `tokens` a second time. A size of 0 or more than the tokens there are does nothing.
void ban_repeated_ngrams(const std::vector<int64_t>& tokens, size_t size, float* logits, size_t n);

}  // namespace pagewheel
