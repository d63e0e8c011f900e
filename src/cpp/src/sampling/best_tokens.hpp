// The largest of a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

struct TokenLogit {
    float logit;
    int64_t id;
};

/// Logits that no token can be chosen by; what() says why.
struct LogitsError : Error {
    explicit LogitsError(const std::string& message, ErrorCode code = ErrorCode::step_failed,
                         const std::string& parameter = {})
        : Error(message, code, parameter) {}
};

/// All tokens are banned.
struct NoTokenLeft : LogitsError {
    explicit NoTokenLeft(const std::string& message)
        : LogitsError(message, ErrorCode::no_token_possible) {}
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
