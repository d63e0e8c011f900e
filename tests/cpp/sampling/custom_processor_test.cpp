// Logits processors of the caller's.
#include <gtest/gtest.h>

#include "sampling/log_probs.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/sampler.hpp"
#include "support/random_logits.hpp"

namespace pagewheel {
namespace {

/// Writes how often it was called into logit 0.
class Counting : public LogitsProcessor {
public:
    void process(const LogitsRow& row, const TokenHistory&) override {
        row.logits[0] = float(++m_calls);
    }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<Counting>(*this);
    }

private:
    int m_calls = 0;
};

/// Does to the row what it is told to.
class Doing : public LogitsProcessor {
public:
    explicit Doing(std::function<void(const LogitsRow&)> work) : m_work(std::move(work)) {}
    void process(const LogitsRow& row, const TokenHistory&) override { m_work(row); }
    std::unique_ptr<LogitsProcessor> fork() const override {
        return std::make_unique<Doing>(*this);
    }

private:
    std::function<void(const LogitsRow&)> m_work;
};

GenerationConfig with(std::shared_ptr<const LogitsProcessor> processor) {
    GenerationConfig config;
    config.logits_processors = {std::move(processor)};
    return config;
}

float first_logit(LogitsChain& chain) {
    std::vector<float> row(3, 0.0f);
    chain.process({row.data(), row.size()}, {{1}, 1});
    return row[0];
}

TEST(CustomProcessor, HasAStateForEachSequenceAndABeamTakesItAlong) {
    const auto config = with(std::make_shared<Counting>());
    LogitsChain one(config), other(config);
    EXPECT_EQ(first_logit(one), 1.0f);
    EXPECT_EQ(first_logit(one), 2.0f);
    EXPECT_EQ(first_logit(other), 1.0f);
    LogitsChain beam = one.fork();
    EXPECT_EQ(first_logit(beam), 3.0f);
    EXPECT_EQ(first_logit(one), 3.0f);
}

TEST(CustomProcessor, ComesAfterThoseOfTheTable) {
    auto config = with(std::make_shared<Doing>([](const LogitsRow& row) {
        EXPECT_EQ(row.logits[1], -inf);
        row.logits[1] = 5.0f;
    }));
    config.suppress_tokens = {1};
    std::vector<float> row(3, 0.0f);
    EXPECT_EQ(Sampler(config, 0, Isa::scalar).sample({{1}, 1}, row.data(), row.size()).id, 1);
}

std::string error_of(std::function<void(const LogitsRow&)> work) {
    const auto config = with(std::make_shared<Doing>(std::move(work)));
    Sampler sampler(config, 0, Isa::scalar);
    std::vector<float> row(3, 0.0f);
    try {
        sampler.sample({{1}, 1}, row.data(), row.size());
    } catch (const LogitsError& error) {
        return error.what();
    }
    return "";
}

TEST(CustomProcessor, FailsWithItsOwnMessage) {
    EXPECT_EQ(error_of([](const LogitsRow&) { throw std::out_of_range("no such thing"); }),
              "a logits processor failed: no such thing");
}

TEST(CustomProcessor, IsToldOfLogitsThatNoTokenCanBeChosenBy) {
    EXPECT_NE(error_of([](const LogitsRow& row) {
                  row.logits[2] = inf;
              }).find("a logit of inf for token 2"),
              std::string::npos);
    EXPECT_NE(error_of([](const LogitsRow& row) { row.logits[1] = inf - inf; }).find("for token 1"),
              std::string::npos);
    EXPECT_NE(error_of([](const LogitsRow& row) {
                  for (size_t i = 0; i < row.size; ++i) row.ban(int64_t(i));
              }).find("no token can be chosen"),
              std::string::npos);
}

TEST(CustomProcessor, RunsOnTheSteppingThreadUnlessItSaysOtherwise) {
    EXPECT_TRUE(Sampler({}, 0, Isa::scalar).runs_anywhere());
    EXPECT_FALSE(Sampler(with(std::make_shared<Counting>()), 0, Isa::scalar).runs_anywhere());
}

TEST(CustomProcessor, MayNotBeNull) {
    auto config = with(nullptr);
    config.max_new_tokens = 1;
    EXPECT_THROW(config.validate(), std::runtime_error);
}

}  // namespace
}  // namespace pagewheel
