// No end before a number of tokens.
#pragma once

#include <utility>

#include "sampling/logits_processor.hpp"

namespace pagewheel {

/// Bans the stop tokens until `min_new_tokens` were generated.
class MinimumLength final : public LogitsProcessor {
public:
    MinimumLength(size_t min_new_tokens, std::vector<int64_t> stop_tokens)
        : m_min_new_tokens(min_new_tokens), m_stop_tokens(std::move(stop_tokens)) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        if (history.num_generated() >= m_min_new_tokens) return;
        for (const int64_t token : m_stop_tokens) row.ban(token);
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<MinimumLength>(*this);
    }

private:
    size_t m_min_new_tokens;
    std::vector<int64_t> m_stop_tokens;
};

}  // namespace pagewheel
