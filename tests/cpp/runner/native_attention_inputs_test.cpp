// The input batch_tables as the engine fills it, read back by layer.
#include "runner/attention_inputs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "support/inputs_model.hpp"

namespace pagewheel {
namespace {

constexpr size_t block_size = 16;

/// Two layers with caches of their own, numbers 0 and 2.
std::vector<CacheLayer> two_layers() {
    std::vector<CacheLayer> layers(2);
    for (CacheLayer& layer : layers) {
        layer.layout.key_size = 4;
        layer.rotary.dims = 4;
    }
    layers[1].cache = 2;
    return layers;
}

const std::vector<RotaryKind> rotary{{4, false, {1.0, 0.1}}};

/// Two sequences: one with three new tokens behind 20, one with a prompt.
struct Step {
    Sequence first, second;
    EvictionState evicted;
    Batch batch;
    InputsModel model;

    /// With `names` of inputs beside the tables.
    explicit Step(const InputsModel::Inputs& names = {}) : model(names, {{"batch_tables", 1}}) {
        first.tokens.resize(23);
        first.num_cached = 20;
        first.blocks = {7, 3};
        first.number = 1;
        second.tokens.resize(5);
        second.blocks = {5};
        second.number = 2;
        batch.entries = {{&first, 3, 2, true}, {&second, 5, 1, true}};
        batch.num_tokens = 8;
    }

    /// Each layer holds the first sequence's blocks in an order of its own, the last one rotated.
    void evict() {
        evicted.layers.resize(2);
        evicted.layers[0].rotated = evicted.layers[1].rotated = {1};
        evicted.layers[1].order = {1, 0};
        evicted.layers[0].deltas = {6};
        evicted.layers[1].deltas.assign(block_size, 4);
        evicted.layers[1].per_token = true;
        evicted.num_evicted = 4;
        evicted.largest_delta = 6;
        first.eviction = &evicted;
        first.num_evicted = 4;
    }

    kernels::BatchTables read(size_t layer) {
        ov::Tensor tensor = model.request.get_tensor("batch_tables");
        const kernels::BatchTables tables(tensor.data<int32_t>(), tensor.get_size(), layer);
        tables.check({8, 8, 8, block_size, 4});
        return tables;
    }
    kernels::BatchTables read_asked(size_t layer, size_t num_rows) {
        ov::Tensor tensor = model.request.get_tensor("batch_tables");
        const kernels::BatchTables tables(tensor.data<int32_t>(), tensor.get_size(), layer,
                                          kernels::Queries::LOGITS);
        tables.check({8, num_rows, 8, block_size, 4});
        return tables;
    }
};

template <class T>
std::vector<std::remove_const_t<T>> values_of(const kernels::TableSection<T>& section) {
    return {section.values, section.values + section.size};
}

using Words = std::vector<int32_t>;

TEST(NativeAttentionInputs, WithoutEvictionOneTableServesAllLayers) {
    Step step;
    NativeAttentionInputs inputs(step.model.compiled, {}, {}, block_size, false);
    for (int i = 0; i < 2; ++i) {
        inputs.fill(step.model.request, step.batch, {});
        const kernels::BatchTables tables = step.read(i == 0 ? 0 : 29);
        EXPECT_EQ(values_of(tables.past_lens), (Words{20, 0}));
        EXPECT_EQ(values_of(tables.subsequence_begins), (Words{0, 3, 8}));
        EXPECT_EQ(values_of(tables.block_indices_begins), (Words{0, 2, 3}));
        EXPECT_EQ(values_of(tables.block_indices), (Words{7, 3, 5}));
        EXPECT_EQ(tables.rotated_block_indices.size, 0u);
        EXPECT_FALSE(tables.has_scores());
    }
}

TEST(NativeAttentionInputs, LayersShareATableUntilSomethingIsEvicted) {
    Step step;
    NativeAttentionInputs inputs(step.model.compiled, two_layers(), rotary, block_size, false);
    inputs.fill(step.model.request, step.batch, {});
    EXPECT_EQ(values_of(step.read(0).block_indices), (Words{7, 3, 5}));
    EXPECT_EQ(step.read(2).block_indices.values, step.read(0).block_indices.values);
    EXPECT_EQ(step.read(2).rotated_block_indices.size, 0u);

    step.evict();
    inputs.fill(step.model.request, step.batch, {});
    EXPECT_EQ(values_of(step.read(0).past_lens), (Words{16, 0}));
    EXPECT_EQ(values_of(step.read(0).block_indices), (Words{7, 3, 5}));
    EXPECT_EQ(values_of(step.read(2).block_indices), (Words{3, 7, 5}));
    EXPECT_EQ(values_of(step.read(0).rotated_block_indices), (Words{1}));
    EXPECT_EQ(values_of(step.read(0).rotation_deltas), (Words{6}));
    EXPECT_EQ(step.read(2).delta_width, block_size);
    EXPECT_EQ(values_of(step.read(2).rotation_deltas), Words(block_size, 4));
    const kernels::BatchTables tables = step.read(0);
    EXPECT_FLOAT_EQ(tables.rotation_trig_lut[6 * 4], std::cos(6.0f));
}

TEST(NativeAttentionInputs, WhatChangesWithEveryStepIsWrittenIntoTablesThatStay) {
    Step step;
    NativeAttentionInputs inputs(step.model.compiled, two_layers(), rotary, block_size, false);
    step.evict();
    inputs.fill(step.model.request, step.batch, {0, 0});
    const auto* before = step.read(2).block_indices.values;
    step.first.num_cached += 3;
    step.batch.entries[0].num_tokens = 3;
    inputs.fill(step.model.request, step.batch, {0, 0});
    EXPECT_EQ(step.read(2).block_indices.values, before);
    EXPECT_EQ(values_of(step.read(2).past_lens), (Words{19, 0}));
    EXPECT_EQ(values_of(step.read(2).block_indices), (Words{3, 7, 5}));
}

TEST(NativeAttentionInputs, ScoresOfALayerAreWhereItsSectionSays) {
    Step step;
    NativeAttentionInputs inputs(step.model.compiled, two_layers(), rotary, block_size, false);
    inputs.fill(step.model.request, step.batch, {0, 2});
    for (const size_t layer : {0, 2}) {
        const kernels::BatchTables tables = step.read(layer);
        EXPECT_EQ(values_of(tables.score_windows), (Words{0, 2}));
        ASSERT_EQ(tables.scores.size, 23u + 5u);
        tables.scores[23] = float(layer) + 0.5f;
    }
    const std::vector<const float*>& scores = inputs.scores(step.model.request, 1);
    ASSERT_EQ(scores.size(), 2u);
    EXPECT_EQ(*scores[0], 0.5f);
    EXPECT_EQ(*scores[1], 2.5f);
    // Nobody asks: none are written.
    inputs.fill(step.model.request, step.batch, {0, 0});
    EXPECT_FALSE(step.read(0).has_scores());
}

TEST(NativeAttentionInputs, LogitsIndicesAreWrittenWhereSomeAttentionReadsThem) {
    using Layout = kernels::BatchTablesLayout;
    for (const bool evicts : {false, true}) {
        Step step;
        const std::vector<CacheLayer> layers = evicts ? two_layers() : std::vector<CacheLayer>();
        NativeAttentionInputs none(step.model.compiled, layers, rotary, block_size, false);
        none.fill(step.model.request, step.batch, {});
        const ov::Tensor tensor = step.model.request.get_tensor("batch_tables");
        for (const size_t section : {Layout::logits_past_lens, Layout::logits_begins})
            EXPECT_EQ(tensor.data<int32_t>()[3 + 2 * section], 0);

        NativeAttentionInputs inputs(step.model.compiled, layers, rotary, block_size, true);
        inputs.fill(step.model.request, step.batch, {});
        const kernels::BatchTables tables = step.read_asked(0, 3);
        EXPECT_EQ(values_of(tables.past_lens), (Words{21, 4}));
        EXPECT_EQ(values_of(tables.subsequence_begins), (Words{0, 2, 3}));
        EXPECT_EQ(values_of(step.read(0).past_lens), (Words{20, 0}));
        for (BatchEntry& entry : step.batch.entries) entry.num_logits = 0;
        inputs.fill(step.model.request, step.batch, {});
        EXPECT_EQ(values_of(step.read_asked(0, 0).past_lens), (Words{23, 5}));
    }
}

TEST(NativeAttentionInputs, LogitsIndicesChangeWithEveryStepInTablesThatStay) {
    Step step({{"logits_indices", 1}});
    NativeAttentionInputs inputs(step.model.compiled, two_layers(), rotary, block_size, true);
    step.evict();
    inputs.fill(step.model.request, step.batch, {1, 4});
    const auto* before = step.read(2).block_indices.values;
    EXPECT_EQ(values_of(step.read_asked(2, 6).past_lens), (Words{17, 1}));
    inputs.fill(step.model.request, step.batch, {0, 0});
    EXPECT_EQ(values_of(step.read_asked(2, 3).past_lens), (Words{17, 4}));
    // A window that is longer than what is new.
    inputs.fill(step.model.request, step.batch, {64, 0});
    const kernels::BatchTables tables = step.read_asked(2, 4);
    EXPECT_EQ(values_of(tables.past_lens), (Words{16, 4}));
    EXPECT_EQ(values_of(tables.subsequence_begins), (Words{0, 3, 4}));
    EXPECT_EQ(values_of(tables.score_windows), (Words{64, 0}));
    EXPECT_EQ(step.read(2).block_indices.values, before);
}

TEST(NativeAttentionInputs, WithoutLogitsIndicesAsAnInputTheyAreThoseOfLogits) {
    Step step;
    NativeAttentionInputs inputs(step.model.compiled, {}, {}, block_size, true);
    inputs.fill(step.model.request, step.batch, {64, 64});
    EXPECT_EQ(values_of(step.read_asked(0, 3).past_lens), (Words{21, 4}));
}

}  // namespace
}  // namespace pagewheel
