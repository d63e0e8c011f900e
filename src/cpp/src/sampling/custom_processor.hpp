// The caller's logits processors, whose failures end their request alone.
#pragma once

#include <memory>
#include <utility>

#include "pagewheel/logits_processor.hpp"

namespace pagewheel {

/// Whatever the processor within throws is a LogitsError, and so are logits that it leaves and no
/// token can be chosen by.
class CustomProcessor final : public LogitsProcessor {
public:
    static std::unique_ptr<LogitsProcessor> fork_of(const LogitsProcessor& given);

    void process(const LogitsRow& row, const TokenHistory& history) override;
    std::unique_ptr<LogitsProcessor> fork() const override { return fork_of(*m_own); }
    bool runs_anywhere() const override { return m_own->runs_anywhere(); }

private:
    explicit CustomProcessor(std::unique_ptr<LogitsProcessor> own) : m_own(std::move(own)) {}

    std::unique_ptr<LogitsProcessor> m_own;
};

}  // namespace pagewheel
