// What changes logits before a token is selected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// A view of a sequence's tokens when its next one is wanted: the first `prompt_length` are the
/// prompt, the others were generated. All of them stay; what is only proposed is not among them.
struct TokenHistory {
    const std::vector<int64_t>& tokens;
    size_t prompt_length;

    size_t num_generated() const { return tokens.size() - prompt_length; }
};

/// A row of logits [size], changed in place. What a processor works on is logit - offset: with
/// offset 0 the logit itself, as in sampling; with the logarithm of the sum of all exp(logit) the
/// token's log-probability, as in beam search.
struct LogitsRow {
    float* logits;
    size_t size;
    double offset = 0;

    /// False for -1, which stands for no token, and for ids that the model has no logit of.
    bool has(int64_t token) const { return size_t(token) < size; }
    void ban(int64_t token) const {
        if (has(token)) logits[token] = -std::numeric_limits<float>::infinity();
    }
};

/// Serves one sequence. Those of GenerationConfig::logits_processors are the caller's: each
/// sequence of the request gets a fork() of its own, after pagewheel's processors. It is called
/// once for each token that is generated, never for a prompt's. What it throws ends its request
/// with the message, and so do NaN and plus infinity in the row; other requests go on.
class PAGEWHEEL_API LogitsProcessor {
public:
    virtual ~LogitsProcessor() = default;
    /// `history` begins with that of the call before: state advances by what is new in it. Both
    /// views end with the call.
    virtual void process(const LogitsRow& row, const TokenHistory& history) = 0;
    /// A processor for another sequence that goes on as this one did so far: a sample of the same
    /// prompt, or a beam.
    virtual std::unique_ptr<LogitsProcessor> fork() const = 0;
    /// True: any of the engine's threads may call process(), those of several sequences at once.
    /// False: the thread that steps calls it. A call that would need another step throws in both.
    virtual bool runs_anywhere() const { return false; }
};

}  // namespace pagewheel
