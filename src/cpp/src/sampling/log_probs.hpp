// The largest of a row of logits, and log-probabilities for callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/isa.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/generation_handle.hpp"

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

/// A log-probability as callers get it: rounding makes none positive, and none is -0.
inline float rounded_log_prob(double value) {
    const float rounded = float(value);
    return rounded < 0 ? rounded : 0.0f;
}

/// log_softmax of logits [n], which it looks at. For one row and one call of find_top().
class LogProbs {
public:
    /// Throws LogitsError.
    LogProbs(const float* logits, size_t n, Isa isa);

    float of(int64_t token) const {
        return rounded_log_prob(double(m_logits[token]) - m_log_total);
    }
    /// Fills `top` with the `count` likeliest tokens, best first; without those of probability 0.
    /// `chosen` comes behind them if it is not among them.
    void find_top(size_t count, int64_t chosen, std::vector<TokenLogProb>& top);

private:
    const float* m_logits;
    size_t m_size;
    Isa m_isa;
    double m_log_total;
    std::vector<TokenLogit> m_best;  // the best one, until others are asked for
};

/// The first `count` of `best`, whose logits are log-probabilities; then as above.
std::vector<TokenLogProb> top_log_probs(const std::vector<TokenLogit>& best, size_t count,
                                        const TokenLogit& chosen);

}  // namespace pagewheel
