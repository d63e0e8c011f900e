// The inputs of OpenVINO's attention, without eviction.
#include "runner/attention_inputs.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/inputs_model.hpp"

namespace pagewheel {
namespace {

using Words = std::vector<int32_t>;

const InputsModel::Inputs plain{{"past_lens", 1},
                                {"subsequence_begins", 1},
                                {"block_indices", 1},
                                {"block_indices_begins", 1},
                                {"max_context_len", 0}};

InputsModel::Inputs with_asked() {
    InputsModel::Inputs inputs = plain;
    for (const char* name : {"logits_past_lens", "logits_subsequence_begins",
                             "logits_block_indices", "logits_block_indices_begins"})
        inputs.emplace_back(name, 1);
    return inputs;
}

/// A decode with a draft behind 20 tokens, a chunk in the middle of a prompt, and a prompt's end.
struct Step {
    Sequence first, second, third;
    Batch batch;

    Step() {
        for (Sequence* sequence : {&first, &second, &third}) sequence->tokens.resize(64);
        first.num_cached = 20;
        first.blocks = {7, 3};
        second.num_cached = 16;
        second.blocks = {5, 6};
        third.blocks = {1};
        batch.entries = {{&first, 2, 2, 2}, {&second, 12, 0, 0}, {&third, 9, 1, 1}};
        batch.num_tokens = 23;
    }
};

void expect_plain(InputsModel& model) {
    EXPECT_EQ(model.read<int32_t>("past_lens"), (Words{20, 16, 0}));
    EXPECT_EQ(model.read<int32_t>("subsequence_begins"), (Words{0, 2, 14, 23}));
    EXPECT_EQ(model.read<int32_t>("block_indices"), (Words{7, 3, 5, 6, 1}));
    EXPECT_EQ(model.read<int32_t>("block_indices_begins"), (Words{0, 2, 4, 5}));
    EXPECT_EQ(model.read<int32_t>("max_context_len"), (Words{28}));
}

TEST(OpenVinoAttentionInputs, DescribeTheBatch) {
    Step step;
    InputsModel model({}, plain);
    ASSERT_TRUE(OpenVinoAttentionInputs::serves(model.compiled));
    OpenVinoAttentionInputs inputs(model.compiled);
    inputs.fill(model.request, step.batch, {});
    expect_plain(model);
}

TEST(OpenVinoAttentionInputs, ThoseOfLogitsIndicesLeaveOutSequencesThatHaveNone) {
    Step step;
    InputsModel model({}, with_asked());
    OpenVinoAttentionInputs inputs(model.compiled);
    inputs.fill(model.request, step.batch, {});
    expect_plain(model);
    EXPECT_EQ(model.read<int32_t>("logits_past_lens"), (Words{20, 8}));
    EXPECT_EQ(model.read<int32_t>("logits_subsequence_begins"), (Words{0, 2, 3}));
    EXPECT_EQ(model.read<int32_t>("logits_block_indices"), (Words{7, 3, 1}));
    EXPECT_EQ(model.read<int32_t>("logits_block_indices_begins"), (Words{0, 2, 3}));
}

TEST(OpenVinoAttentionInputs, ThoseOfLogitsIndicesHaveTheLastTokenIfNobodyAsks) {
    Step step;
    InputsModel model({}, with_asked());
    OpenVinoAttentionInputs inputs(model.compiled);
    for (const bool asks : {false, true, false}) {  // with memory that is new, and that is there
        for (BatchEntry& entry : step.batch.entries) entry.num_logits = asks;
        inputs.fill(model.request, step.batch, {});
        expect_plain(model);
        EXPECT_EQ(model.read<int32_t>("logits_past_lens"), asks ? Words({21, 27, 8}) : Words{8});
        EXPECT_EQ(model.read<int32_t>("logits_block_indices"),
                  asks ? Words({7, 3, 5, 6, 1}) : Words{1});
        if (asks) continue;
        EXPECT_EQ(model.read<int32_t>("logits_subsequence_begins"), (Words{0, 1}));
        EXPECT_EQ(model.read<int32_t>("logits_block_indices_begins"), (Words{0, 1}));
    }
}

}  // namespace
}  // namespace pagewheel
