// The inputs that say which tokens a step computes, and which of them to the end.
#include "runner/model_inputs.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "eviction/slot_table.hpp"
#include "support/inputs_model.hpp"

namespace pagewheel {
namespace {

using Numbers = std::vector<int64_t>;

/// Two sequences: one with three new tokens behind 20, one with a chunk of its prompt.
struct Step {
    Sequence first, second;
    EvictionState eviction;
    Batch batch;

    Step() {
        first.tokens.resize(23);
        first.tokens[20] = 5;
        first.num_cached = 20;
        first.num_evicted = 16;
        first.eviction = &eviction;
        second.tokens.resize(40);
        batch.entries = {{&first, 3, 2, 1}, {&second, 5, 0, 0}};
        batch.num_tokens = 8;
    }
};

TEST(TokenInputs, WithoutLogitsIndicesSampledTokensIndicesAreOfTheBatchsTokens) {
    Step step;
    InputsModel model({{"input_ids", 1}, {"position_ids", 1}, {"sampled_tokens_indices", 1}}, {});
    TokenInputs inputs(model.compiled);
    for (const std::vector<size_t>& windows : {std::vector<size_t>{}, {3, 3}}) {
        inputs.fill(model.request, step.batch, windows);
        EXPECT_EQ(model.read<int64_t>("input_ids"), (Numbers{5, 0, 0, 0, 0, 0, 0, 0}));
        EXPECT_EQ(model.read<int64_t>("position_ids"), (Numbers{20, 21, 22, 0, 1, 2, 3, 4}));
        EXPECT_EQ(model.read<int64_t>("sampled_tokens_indices"), (Numbers{1, 2}));
    }
}

TEST(TokenInputs, PositionsAreLowerByTheShiftOfEviction) {
    Step step;
    step.eviction.shift = 12;  // 4 more went since
    InputsModel model({{"input_ids", 1}, {"position_ids", 1}, {"sampled_tokens_indices", 1}}, {});
    TokenInputs inputs(model.compiled);
    inputs.fill(model.request, step.batch, {});
    EXPECT_EQ(model.read<int64_t>("position_ids"), (Numbers{8, 9, 10, 0, 1, 2, 3, 4}));
}

TEST(TokenInputs, LogitsIndicesHoldWhatIsObservedAndSampledTokensIndicesAreOfThem) {
    Step step;
    InputsModel model({{"input_ids", 1},
                       {"position_ids", 1},
                       {"logits_indices", 1},
                       {"sampled_tokens_indices", 1}},
                      {});
    TokenInputs inputs(model.compiled);
    const auto fill = [&](const std::vector<size_t>& windows) {
        inputs.fill(model.request, step.batch, windows);
        return std::pair(model.read<int64_t>("logits_indices"),
                         model.read<int64_t>("sampled_tokens_indices"));
    };
    EXPECT_EQ(fill({}), std::pair(Numbers{1, 2}, Numbers{0, 1}));
    EXPECT_EQ(fill({0, 0}), std::pair(Numbers{1, 2}, Numbers{0, 1}));
    EXPECT_EQ(fill({1, 2}), std::pair(Numbers{1, 2, 6, 7}, Numbers{0, 1}));
    // Windows may be longer than what is new.
    EXPECT_EQ(fill({64, 64}), std::pair(Numbers{0, 1, 2, 3, 4, 5, 6, 7}, Numbers{1, 2}));
    step.batch.entries[1].num_logits = 1;
    EXPECT_EQ(fill({3, 4}), std::pair(Numbers{0, 1, 2, 4, 5, 6, 7}, Numbers{1, 2, 6}));
    step.batch.entries[0].num_logits = step.batch.entries[1].num_logits = 0;
    EXPECT_EQ(fill({}), std::pair(Numbers{}, Numbers{}));
}

TEST(TokenInputs, BesideOpenVinosAttentionOfLogitsIndicesTheLastTokenIsOne) {
    Step step;
    const InputsModel::Inputs attention{{"logits_past_lens", 1}};
    InputsModel without({{"input_ids", 1}, {"position_ids", 1}, {"sampled_tokens_indices", 1}},
                        attention);
    InputsModel with({{"input_ids", 1},
                      {"position_ids", 1},
                      {"logits_indices", 1},
                      {"sampled_tokens_indices", 1}},
                     attention);
    for (const size_t logits : {2, 0}) {
        step.batch.entries[0].num_logits = logits;
        const Numbers asked = logits == 2 ? Numbers{1, 2, 7} : Numbers{7};
        TokenInputs(without.compiled).fill(without.request, step.batch, {});
        EXPECT_EQ(without.read<int64_t>("sampled_tokens_indices"), asked);
        TokenInputs(with.compiled).fill(with.request, step.batch, {});
        EXPECT_EQ(with.read<int64_t>("logits_indices"), asked);
        EXPECT_EQ(with.read<int64_t>("sampled_tokens_indices"),
                  logits == 2 ? Numbers({0, 1}) : Numbers{});
    }
}

}  // namespace
}  // namespace pagewheel
