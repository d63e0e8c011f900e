// OpenAI's penalties on tokens that were generated.
#pragma once

#include "sampling/logits_processor.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {

/// Subtracts from each generated token `presence` once and `frequency` for each occurrence. The
/// prompt does not count. Both in one class: they share the counts, and one subtraction rounds
/// once.
class OccurrencePenalty final : public LogitsProcessor {
public:
    OccurrencePenalty(float presence, float frequency)
        : m_presence(presence), m_frequency(frequency) {}
    void process(const LogitsRow& row, const TokenHistory& history) override;
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<OccurrencePenalty>(*this);
    }

private:
    float m_presence, m_frequency;
    TokenCounts m_generated;
};

}  // namespace pagewheel
