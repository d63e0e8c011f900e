#include "sampling/occurrence_penalty.hpp"

namespace pagewheel {

void OccurrencePenalty::process(const LogitsRow& row, const TokenHistory& history) {
    m_generated.update(history.tokens, history.prompt_length);
    for (const auto& [token, count] : m_generated)
        if (row.has(token)) row.logits[token] -= m_presence + m_frequency * float(count);
}

}  // namespace pagewheel
