// No end before a number of tokens.
#include <utility>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

/// Bans the stop tokens until `min_new_tokens` were generated.
class MinimumLength final : public ForkedByCopy<MinimumLength> {
public:
    MinimumLength(size_t min_new_tokens, std::vector<int64_t> stop_tokens)
        : m_min_new_tokens(min_new_tokens), m_stop_tokens(std::move(stop_tokens)) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        if (history.num_generated() >= m_min_new_tokens) return;
        for (const int64_t token : m_stop_tokens) row.ban(token);
    }

private:
    size_t m_min_new_tokens;
    std::vector<int64_t> m_stop_tokens;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_min_new_tokens(const GenerationConfig& config) {
    if (config.min_new_tokens == 0) return nullptr;
    std::vector<int64_t> tokens(config.stop_token_ids.begin(), config.stop_token_ids.end());
    if (config.eos_token_id >= 0) tokens.push_back(config.eos_token_id);
    return std::make_unique<MinimumLength>(config.min_new_tokens, std::move(tokens));
}

}  // namespace pagewheel
