// CTRL's penalty on tokens that occurred (Keskar et al. 2019).
#pragma once

#include "sampling/logits_processor.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {

/// Divides positive values by the penalty and multiplies the others by it, once for each token in
/// prompt and generation. What is finite stays finite; what is banned stays banned.
class RepetitionPenalty final : public LogitsProcessor {
public:
    explicit RepetitionPenalty(float penalty) : m_penalty(penalty) {}
    void process(const LogitsRow& row, const TokenHistory& history) override;
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<RepetitionPenalty>(*this);
    }

private:
    double m_penalty;
    TokenCounts m_seen;
};

}  // namespace pagewheel
