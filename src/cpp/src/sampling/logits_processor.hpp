// Logits processors that are functions.
#pragma once

#include <memory>
#include <utility>

#include "pagewheel/logits_processor.hpp"

namespace pagewheel {

/// A processor that is a function and what it captures. Its fork has a copy.
template <class Function>
class FunctionProcessor final : public LogitsProcessor {
public:
    explicit FunctionProcessor(Function function) : m_function(std::move(function)) {}
    void process(const LogitsRow& row, const TokenHistory& history) override {
        m_function(row, history);
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<FunctionProcessor>(*this);
    }
    bool runs_anywhere() const override { return true; }

private:
    Function m_function;
};

template <class Function>
std::unique_ptr<LogitsProcessor> make_processor(Function function) {
    return std::make_unique<FunctionProcessor<Function>>(std::move(function));
}

}  // namespace pagewheel
