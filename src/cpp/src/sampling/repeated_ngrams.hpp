// No so many tokens in a row twice.
#pragma once

#include "sampling/logits_processor.hpp"

namespace pagewheel {

/// Bans the tokens after which the last `size` tokens would stand in the sequence a second time.
/// `size` is at least 1.
class RepeatedNgrams final : public LogitsProcessor {
public:
    explicit RepeatedNgrams(size_t size) : m_size(size) {}
    void process(const LogitsRow& row, const TokenHistory& history) override;
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<RepeatedNgrams>(*this);
    }

private:
    size_t m_size;
};

}  // namespace pagewheel
