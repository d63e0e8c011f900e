// The largest of a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "kernels/isa.hpp"

namespace pagewheel {

struct TokenLogit {
    float logit;
    int64_t id;
};

/// Logits that no token can be chosen by; what() says why.
struct LogitsError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// All tokens are banned.
struct NoTokenLeft : LogitsError {
    using LogitsError::LogitsError;
};

/// Throws NoTokenLeft.
[[noreturn]] void throw_all_banned();

/// Index of the largest of logits [n], the lowest of equals. Throws LogitsError if one of them is
/// NaN or plus infinity, or all are minus infinity.
size_t find_best_token(const float* logits, size_t n, Isa isa);

/// Fills `best` with the k largest of logits [n] that are at least `weakest`, best first and of
/// equals the lower id first. NaN is never among them.
void find_best_tokens(const float* logits, size_t n, size_t k, float weakest, Isa isa,
                      std::vector<TokenLogit>& best);

}  // namespace pagewheel
