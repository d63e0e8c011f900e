#include "sampling/repeated_ngrams.hpp"

#include <algorithm>
#include <limits>

namespace pagewheel {

void ban_repeated_ngrams(const std::vector<int64_t>& tokens, size_t size, float* logits, size_t n) {
    if (size == 0 || size > tokens.size()) return;
    const auto tail = tokens.end() - ptrdiff_t(size - 1);
    for (auto at = tokens.begin(); at + ptrdiff_t(size - 1) < tokens.end(); ++at) {
        const int64_t next = at[ptrdiff_t(size - 1)];
        if (size_t(next) < n && std::equal(tail, tokens.end(), at))
            logits[next] = -std::numeric_limits<float>::infinity();
    }
}

}  // namespace pagewheel
