// The largest of a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/isa.hpp"

namespace pagewheel {

struct TokenLogit {
    float logit;
    int64_t id;
};

/// Fills `best` with the k largest of logits [n] that are at least `weakest`, best first and of
/// equals the lower id first. NaN is never among them.
void find_best_tokens(const float* logits, size_t n, size_t k, float weakest, Isa isa,
                      std::vector<TokenLogit>& best);

}  // namespace pagewheel
