// OpenAI's penalties on tokens that were generated.
#include "sampling/logits_chain.hpp"
#include "sampling/token_counts.hpp"

namespace pagewheel {
namespace {

/// Subtracts from each generated token `presence` once and `frequency` for each occurrence. The
/// prompt does not count. Both in one class: they share the counts, and one subtraction rounds
/// once.
class OccurrencePenalty final : public ForkedByCopy<OccurrencePenalty> {
public:
    OccurrencePenalty(float presence, float frequency)
        : m_presence(presence), m_frequency(frequency) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        m_generated.update(history.tokens, history.prompt_length);
        for (const auto& [token, count] : m_generated)
            if (row.has(token)) row.logits[token] -= m_presence + m_frequency * float(count);
    }

private:
    float m_presence, m_frequency;
    TokenCounts m_generated;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_presence_penalty(const GenerationConfig& config) {
    if (config.presence_penalty == 0.0f && config.frequency_penalty == 0.0f) return nullptr;
    return std::make_unique<OccurrencePenalty>(config.presence_penalty, config.frequency_penalty);
}

}  // namespace pagewheel
