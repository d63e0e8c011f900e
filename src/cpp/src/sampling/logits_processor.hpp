// What changes logits before a token is selected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "sampling/token_history.hpp"

namespace pagewheel {

/// A row of logits [size], changed in place. What a processor works on is logit - offset: with
/// offset 0 the logit itself, as in sampling; with the logarithm of the sum of all exp(logit) the
/// token's log-probability, as in beam search.
struct LogitsRow {
    float* logits;
    size_t size;
    double offset = 0;

    /// False for -1, which stands for no token, and for ids that the model has no logit of.
    bool has(int64_t token) const { return size_t(token) < size; }
    void ban(int64_t token) const {
        if (has(token)) logits[token] = -std::numeric_limits<float>::infinity();
    }
};

/// Serves one sequence. Each belongs to a parameter of generation_parameters.def.
class LogitsProcessor {
public:
    virtual ~LogitsProcessor() = default;
    /// `history` begins with that of the call before: state advances by what is new in it.
    virtual void process(const LogitsRow& row, const TokenHistory& history) = 0;
    /// For a beam that continues this sequence in another way.
    virtual std::unique_ptr<LogitsProcessor> fork() const = 0;
};

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

private:
    Function m_function;
};

template <class Function>
std::unique_ptr<LogitsProcessor> make_processor(Function function) {
    return std::make_unique<FunctionProcessor<Function>>(std::move(function));
}

}  // namespace pagewheel
