// No so many tokens in a row twice.
#include <algorithm>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

/// Bans the tokens after which the last `size` tokens would stand in the sequence a second time.
/// `size` is at least 1.
class RepeatedNgrams final : public ForkedByCopy<RepeatedNgrams> {
public:
    explicit RepeatedNgrams(size_t size) : m_size(size) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        const std::vector<int64_t>& tokens = history.tokens;
        if (m_size > tokens.size()) return;
        const auto before = ptrdiff_t(m_size - 1);
        const auto tail = tokens.end() - before;
        for (auto at = tokens.begin(); at + before < tokens.end(); ++at)
            if (std::equal(tail, tokens.end(), at)) row.ban(at[before]);
    }

private:
    size_t m_size;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_no_repeat_ngram_size(const GenerationConfig& config) {
    const size_t size = config.no_repeat_ngram_size;
    if (size == 0 || size == GenerationConfig::unlimited) return nullptr;
    return std::make_unique<RepeatedNgrams>(size);
}

}  // namespace pagewheel
