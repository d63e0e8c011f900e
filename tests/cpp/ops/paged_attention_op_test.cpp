#include "ops/paged_attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "openvino/op/parameter.hpp"
#include "openvino/runtime/core.hpp"
#include "pagewheel/errors.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel {
namespace {

using Input = PagedAttention::Input;
using kernels::CacheFormat;

/// A small batch: two sequences, one in its prompt, one decoding.
struct Fixture {
    static constexpr size_t block_size = 16, num_blocks = 8;
    PagedAttention::Attributes attributes;
    ov::TensorVector inputs = ov::TensorVector(Input::num_inputs);
    TableValues tables;
    ov::TensorVector outputs;

    explicit Fixture(CacheFormat format = CacheFormat::f32) {
        kernels::AttentionConfig& config = attributes.config;
        config.layout = {format, block_size, 1, 8, 8};
        config.heads = 2;
        config.scale = 0.35f;
        config.rotary_dims = 8;
        config.write_kv_cache = true;
        const size_t tokens = 6;
        floats(Input::query, {tokens, 16});
        floats(Input::key, {tokens, 8});
        floats(Input::value, {tokens, 8});
        for (const auto& [input, bytes] :
             {std::pair(Input::key_blocks, config.layout.key_block_bytes()),
              std::pair(Input::value_blocks, config.layout.value_block_bytes())}) {
            inputs[input] =
                ov::Tensor(ov::element::u8, {num_blocks, 1, block_size, bytes / block_size});
            std::fill_n(inputs[input].data<uint8_t>(), inputs[input].get_byte_size(), uint8_t(0));
        }
        tables.add(0, 5, {3});
        tables.add(20, 1, {1, 4});
        tables.score_windows = {0, 1};
        tables.layers[0] = {{3, 1, 4}, {1}, {2}, normal(4 * 8, 13), 26};
        outputs.emplace_back(ov::element::f32, ov::Shape{0});
    }

    static std::vector<float> normal(size_t size, unsigned seed) {
        std::mt19937 random(seed);
        std::normal_distribution<float> distribution;
        std::vector<float> values(size);
        for (float& value : values) value = distribution(random);
        return values;
    }

    void floats(size_t input, const ov::Shape& shape) {
        inputs[input] = ov::Tensor(ov::element::f32, shape);
        const std::vector<float> values = normal(ov::shape_size(shape), unsigned(input));
        std::copy(values.begin(), values.end(), inputs[input].data<float>());
    }

    /// The layer that the op reads.
    LayerTableValues& layer() { return tables.layers[attributes.layer]; }

    ov::Tensor packed() const {
        ov::Tensor tensor(ov::element::i32, {tables.num_words()});
        std::fill_n(tensor.data<int32_t>(), tensor.get_size(), 0);
        tables.pack(tensor.data<int32_t>());
        return tensor;
    }

    void evaluate() { evaluate(packed()); }
    void evaluate(const ov::Tensor& packed) {
        inputs[Input::batch_tables] = packed;
        PagedAttention op;
        op.set_attributes(attributes);
        op.evaluate(outputs, inputs);
    }

    std::string refusal() { return refusal(packed()); }
    std::string refusal(const ov::Tensor& packed) {
        try {
            evaluate(packed);
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "nothing was refused";
    }

    std::vector<float> output() const {
        const auto* values = outputs[0].data<const float>();
        return {values, values + outputs[0].get_size()};
    }
    /// Of the layer that the op reads, after evaluate().
    std::vector<float> scores() {
        ov::Tensor& tensor = inputs[Input::batch_tables];
        const auto scores =
            kernels::BatchTables(tensor.data<int32_t>(), tensor.get_size(), attributes.layer)
                .scores;
        return {scores.values, scores.values + scores.size};
    }
};

TEST(PagedAttentionOp, ServesAValidBatch) {
    Fixture fixture;
    fixture.evaluate();
    EXPECT_EQ(fixture.outputs[0].get_shape(), (ov::Shape{6, 16}));
    for (const float value : fixture.output()) EXPECT_TRUE(std::isfinite(value));
    // The second sequence asked for scores of its one query: probabilities of two heads.
    float mass = 0;
    for (size_t i = 5; i < 26; ++i) mass += fixture.scores()[i];
    EXPECT_NEAR(mass, 2.0f, 1e-5f);
}

TEST(PagedAttentionOp, TellsTheObservedQueries) {
    for (const bool writes : {true, false}) {
        Fixture fixture;
        fixture.attributes.config.write_kv_cache = writes;
        fixture.tables.score_windows = {2, 1};
        fixture.layer().num_queries = 3 * 16;
        if (!writes) fixture.layer().num_scores = fixture.layer().num_queries = 0;
        fixture.evaluate();
        ov::Tensor& tensor = fixture.inputs[Input::batch_tables];
        const auto observed =
            kernels::BatchTables(tensor.data<int32_t>(), tensor.get_size(), 0).observed_queries;
        if (!writes) {
            EXPECT_EQ(observed.size, 0u);
            continue;
        }
        // The last two of the five tokens of the first sequence, and the one of the other.
        const auto* queries = fixture.inputs[Input::query].data<const float>();
        EXPECT_TRUE(std::equal(observed.values, observed.values + observed.size, queries + 3 * 16));
        EXPECT_EQ(observed.size, 48u);
        fixture.layer().num_queries = 2 * 16;
        EXPECT_EQ(fixture.refusal(), "queries has 32 entries, expected 3 rows of 16");
    }
}

TEST(PagedAttentionOp, TellsTheLast64QueriesOfALongWindow) {
    Fixture fixture;
    fixture.floats(Input::query, {91, 16});
    fixture.floats(Input::key, {91, 8});
    fixture.floats(Input::value, {91, 8});
    fixture.tables = {};
    fixture.tables.add(0, 90, {3, 1, 2, 0, 5, 6});
    fixture.tables.add(20, 1, {7, 4});
    fixture.tables.score_windows = {90, 1};
    fixture.layer().num_scores = 90 + 21;
    fixture.layer().num_queries = 65 * 16;
    fixture.evaluate();
    ov::Tensor& tensor = fixture.inputs[Input::batch_tables];
    const auto observed =
        kernels::BatchTables(tensor.data<int32_t>(), tensor.get_size(), 0).observed_queries;
    const auto* queries = fixture.inputs[Input::query].data<const float>();
    EXPECT_TRUE(std::equal(observed.values, observed.values + observed.size, queries + 26 * 16));
}

/// The fixture's batch with its tables as layer 1 of 3; layer 0 has other blocks and no rotation,
/// and nothing says anything about layer 2.
Fixture of_layer(const Fixture& alone) {
    Fixture fixture = alone;
    LayerTableValues other;
    other.block_indices = {7, 7, 7};
    other.num_scores = 26;
    fixture.tables.layers = {other, alone.tables.layers[0], {}};
    fixture.attributes.layer = 1;
    return fixture;
}

TEST(PagedAttentionOp, ALayerOfTablesForAllLayersIsItsOwn) {
    for (const size_t width : {1, 16}) {
        Fixture alone;
        alone.layer().rotation_deltas.assign(width, 2);
        if (width > 1) alone.layer().rotation_deltas[3] = 1;
        Fixture one_of_many = of_layer(alone);
        for (const size_t cache : {Input::key_blocks, Input::value_blocks}) {
            one_of_many.inputs[cache] =
                ov::Tensor(ov::element::u8, alone.inputs[cache].get_shape());
            alone.inputs[cache].copy_to(one_of_many.inputs[cache]);
        }
        one_of_many.outputs[0] = ov::Tensor(ov::element::f32, {0});
        alone.evaluate();
        one_of_many.evaluate();
        EXPECT_EQ(one_of_many.output(), alone.output());
        EXPECT_EQ(one_of_many.scores(), alone.scores());
    }
}

TEST(PagedAttentionOp, ALayerThatReadsAnothersCacheGivesNoScores) {
    Fixture fixture = of_layer(Fixture());
    fixture.attributes.config.write_kv_cache = false;
    fixture.evaluate();
    EXPECT_EQ(fixture.scores(), std::vector<float>(26, 0));
}

/// The fixture's batch with queries for the last asked[s] new tokens of each sequence.
Fixture asking(const std::vector<size_t>& asked) {
    Fixture fixture;
    fixture.attributes.logits_indices = true;
    fixture.tables.ask(asked);
    const ov::Tensor all = fixture.inputs[Input::query];
    const auto rows = size_t(fixture.tables.logits_begins.back());
    fixture.inputs[Input::query] = ov::Tensor(ov::element::f32, {rows, 16});
    auto* row = fixture.inputs[Input::query].data<float>();
    for (size_t s = 0; s < 2; ++s) {
        const float* end = all.data<float>() + fixture.tables.subsequence_begins[s + 1] * 16;
        row = std::copy(end - asked[s] * 16, end, row);
    }
    return fixture;
}

/// No queries and no scores, as of a batch of prompts' first parts.
Fixture asking_nothing() {
    Fixture fixture = asking({0, 0});
    fixture.tables.score_windows = {0, 0};
    return fixture;
}

std::vector<uint8_t> bytes_of(const ov::Tensor& tensor) {
    const auto* bytes = tensor.data<const uint8_t>();
    return {bytes, bytes + tensor.get_byte_size()};
}

TEST(PagedAttentionOp, LogitsIndicesAreThoseOfAllAndAllKeysAreWritten) {
    Fixture all;
    all.evaluate();
    for (const std::vector<size_t>& asked : {std::vector<size_t>{5, 1}, {2, 1}, {0, 1}, {1, 1}}) {
        Fixture some = asking(asked);
        some.evaluate();
        EXPECT_EQ(some.outputs[0].get_shape(), (ov::Shape{asked[0] + asked[1], 16}));
        std::vector<float> expected = all.output();
        expected.erase(expected.begin(), expected.begin() + ptrdiff_t((5 - asked[0]) * 16));
        ASSERT_EQ(some.output().size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(some.output()[i], expected[i], 1e-6) << i;
        EXPECT_EQ(some.scores(), all.scores());
        for (const size_t cache : {Input::key_blocks, Input::value_blocks})
            EXPECT_EQ(bytes_of(some.inputs[cache]), bytes_of(all.inputs[cache]));
    }
}

TEST(PagedAttentionOp, WithoutAnyQueryKeysAndValuesAreWritten) {
    Fixture all;
    all.evaluate();
    Fixture none = asking_nothing();
    none.evaluate();
    EXPECT_EQ(none.outputs[0].get_shape(), (ov::Shape{0, 16}));
    EXPECT_EQ(none.scores(), std::vector<float>(26, 0));
    for (const size_t cache : {Input::key_blocks, Input::value_blocks})
        EXPECT_EQ(bytes_of(none.inputs[cache]), bytes_of(all.inputs[cache]));
}

/// The op as the only node of a model that the plugin runs.
TEST(PagedAttentionOp, ThePluginRunsItWithoutAnyQuery) {
    Fixture all;
    all.evaluate();
    Fixture none = asking_nothing();
    none.inputs[Input::batch_tables] = none.packed();
    ov::ParameterVector parameters;
    ov::OutputVector inputs;
    for (const ov::Tensor& tensor : none.inputs) {
        ov::PartialShape shape = tensor.get_shape();
        shape[0] = -1;
        parameters.push_back(
            std::make_shared<ov::op::v0::Parameter>(tensor.get_element_type(), shape));
        inputs.push_back(parameters.back());
    }
    const auto op = std::make_shared<PagedAttention>(inputs, none.attributes);
    auto compiled = ov::Core().compile_model(
        std::make_shared<ov::Model>(ov::OutputVector{op}, parameters), "CPU");
    auto request = compiled.create_infer_request();
    for (size_t i = 0; i < none.inputs.size(); ++i) request.set_input_tensor(i, none.inputs[i]);
    request.infer();
    EXPECT_EQ(request.get_output_tensor().get_shape(), (ov::Shape{0, 16}));
    for (const size_t cache : {Input::key_blocks, Input::value_blocks})
        EXPECT_EQ(bytes_of(none.inputs[cache]), bytes_of(all.inputs[cache]));
}

TEST(PagedAttentionOp, WithoutAnyTokenNothingHappens) {
    for (const bool writes : {true, false}) {
        Fixture fixture = asking({0, 0});
        fixture.attributes.config.write_kv_cache = writes;
        fixture.floats(Input::key, {0, 8});
        fixture.floats(Input::value, {0, 8});
        fixture.evaluate(ov::Tensor(ov::element::i32, {0}));
        EXPECT_EQ(fixture.outputs[0].get_shape(), (ov::Shape{0, 16}));
    }
}

TEST(PagedAttentionOp, ALayerThatWritesNothingTakesAnyKeysAndValues) {
    Fixture writing = asking({2, 1});
    writing.evaluate();
    for (const size_t tokens : {0, 3, 6}) {
        Fixture reading = writing;
        reading.attributes.config.write_kv_cache = false;
        reading.floats(Input::key, {tokens, 8});
        reading.floats(Input::value, {tokens, 4});
        reading.outputs[0] = ov::Tensor(ov::element::f32, {0});
        reading.evaluate();
        EXPECT_EQ(reading.output(), writing.output());
    }
}

TEST(PagedAttentionOp, TablesOfLogitsIndicesAreChecked) {
    const auto refused = [](const auto& change) {
        Fixture fixture = asking({2, 1});
        change(fixture);
        return fixture.refusal();
    };
    using F = Fixture;
    EXPECT_EQ(refused([](F&) {}), "nothing was refused");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_past_lens = f.tables.logits_begins = {}; }),
              "logits_past_lens has 0 entries, expected 2");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_begins = {0, 3}; }),
              "logits_begins has 2 entries, expected 3");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_begins = {1, 2, 3}; }),
              "logits_begins begins with 1, expected 0");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_begins = {0, 4, 3}; }),
              "logits_begins[2] is 3, expected at least 4");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_begins = {0, 2, 4}; }),
              "logits_begins ends with 4, expected 3");
    EXPECT_EQ(refused([](F& f) {
                  f.tables.logits_begins = {0, 1, 3};
                  f.tables.logits_past_lens = {4, 19};
              }),
              "sequence 1 has 2 logits indices, expected at most its new tokens, 1");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_past_lens = {2, 20}; }),
              "logits_past_lens[0] is 2, expected 3");
    EXPECT_EQ(refused([](F& f) { f.tables.logits_past_lens = {3, -2147483647}; }),
              "logits_past_lens[1] is -2147483647, expected 20");
    EXPECT_EQ(refused([](F& f) { f.tables.subsequence_begins = {0, 5, 7}; }),
              "subsequence_begins ends with 7, expected 6");
    EXPECT_EQ(refused([](F& f) { f.tables.score_windows = {3, 1}; }),
              "score_windows[0] is 3, expected at most the sequence's logits indices, 2");
    // A window that is longer than what is new needs no more than that.
    EXPECT_EQ(refused([](F& f) { f.tables.score_windows = {0, 64}; }), "nothing was refused");
    EXPECT_EQ(refused([](F& f) { f.floats(Input::key, {5, 8}); }),
              "value is f32 [6,8], expected f32 [5,8]");
    EXPECT_EQ(refused([](F& f) { f.floats(Input::query, {2, 16}); }),
              "logits_begins ends with 3, expected 2");
}

TEST(PagedAttentionOp, TablesForAllLayersAreChecked) {
    const auto refused = [](const auto& change) {
        Fixture fixture = of_layer(Fixture());
        change(fixture.tables, fixture.layer());
        return fixture.refusal();
    };
    using T = TableValues;
    using L = LayerTableValues;
    EXPECT_EQ(refused([](T&, L&) {}), "nothing was refused");
    EXPECT_EQ(refused([](T& t, L&) { t.past_lens = {0, -1}; }),
              "past_lens[1] is -1, expected at least 0");
    EXPECT_EQ(refused([](T& t, L&) { t.past_lens = {}; }),
              "subsequence_begins has 3 entries, expected 1");
    EXPECT_EQ(refused([](T&, L& l) { l.block_indices = {3, 8, 4}; }),
              "block_indices[1] is 8, expected a block of the pool, less than 8");
    EXPECT_EQ(refused([](T& t, L&) { t.score_windows = {0, -2}; }),
              "score_windows[1] is -2, expected at least 0");
    EXPECT_EQ(refused([](T& t, L&) { t.score_windows = {1}; }),
              "score_windows has 1 entries, expected 2");
    EXPECT_EQ(refused([](T&, L& l) { l.rotated_block_indices = {3}; }),
              "rotated_block_indices[0] is 3, expected less than 3");
    EXPECT_EQ(refused([](T&, L& l) { l.rotation_deltas = {4}; }),
              "rotation_deltas has 4, expected a row of the layer's table, less than 4");
    EXPECT_EQ(refused([](T&, L& l) { l.rotation_deltas = {0, 0, 0, 0}; }),
              "rotation_deltas has 4 entries, expected 1 or 16");
    EXPECT_EQ(refused([](T&, L& l) { l.num_scores = 25; }),
              "scores has 25 entries, expected at least 26");
    EXPECT_EQ(refused([](T&, L& l) { l.num_scores = 0; }),
              "scores has 0 entries, expected at least 26");
    EXPECT_EQ(refused([](T&, L& l) { l.rotation_trig_lut.pop_back(); }),
              "rotation_trig_lut has 31 entries, expected rows of 8");
}

TEST(PagedAttentionOp, SectionsThatLeadOutOfTheTablesAreRefused) {
    const auto refused = [](size_t word, int32_t value) {
        Fixture fixture = of_layer(Fixture());
        ov::Tensor packed = fixture.packed();
        packed.data<int32_t>()[word] = value;
        return fixture.refusal(packed);
    };
    EXPECT_EQ(refused(0, 0), "the tables have 0 layers, expected at least 1");
    EXPECT_EQ(refused(0, 1000), "the tables are 158 entries, expected at least 12020");
    EXPECT_EQ(refused(1, 159), "scores begin at 159, expected 56 to 158");
    EXPECT_EQ(refused(1, -1), "scores begin at -1, expected 56 to 158");
    EXPECT_EQ(refused(2, 55), "section 0 has 2 entries from 55 on, expected them in 56 to 106");
    EXPECT_EQ(refused(3, -1), "section 0 has -1 entries from 56 on, expected them in 56 to 106");
    EXPECT_EQ(refused(3, 2147483647),
              "section 0 has 2147483647 entries from 56 on, expected them in 56 to 106");
    // Scores over the tables would change what was checked.
    using Layout = kernels::BatchTablesLayout;
    const size_t scores = 2 + 2 * Layout::index_of(1, Layout::scores);
    EXPECT_EQ(refused(scores, 64),
              "section 19 has 26 entries from 64 on, expected them in 106 to 158");
    Fixture beyond = of_layer(Fixture());
    const ov::Tensor packed = beyond.packed();
    beyond.attributes.layer = 3;
    EXPECT_EQ(beyond.refusal(packed),
              "the tables have 3 layers, expected more than 3, or 1 for all");
    EXPECT_EQ(beyond.refusal(ov::Tensor(ov::element::i32, {1})),
              "the tables are 1 entries, expected at least 2");
}

TEST(PagedAttentionOp, NamesBothValuesOfWhatItRefuses) {
    const auto refused = [](const auto& change) {
        Fixture fixture;
        change(fixture.tables, fixture.layer());
        return fixture.refusal();
    };
    using T = TableValues;
    using L = LayerTableValues;
    EXPECT_EQ(refused([](T& t, L&) { t.past_lens = {0, 32}; }),
              "sequence 1 has a context of 33 tokens, its blocks hold 32");
    EXPECT_EQ(refused([](T& t, L&) { t.past_lens = {0, 2147483647}; }),
              "sequence 1 has a context of 2147483648 tokens, its blocks hold 32");
    EXPECT_EQ(refused([](T& t, L&) { t.subsequence_begins = {0, 6, 6}; }),
              "subsequence_begins[2] is 6, expected at least 7");
    EXPECT_EQ(refused([](T& t, L&) { t.subsequence_begins = {1, 5, 6}; }),
              "subsequence_begins begins with 1, expected 0");
    EXPECT_EQ(refused([](T& t, L&) { t.subsequence_begins = {0, 5, 7}; }),
              "subsequence_begins ends with 7, expected 6");
    EXPECT_EQ(refused([](T& t, L&) { t.subsequence_begins = {0, 6}; }),
              "subsequence_begins has 2 entries, expected 3");
    EXPECT_EQ(refused([](T&, L& l) { l.block_indices = {3, -1, 4}; }),
              "block_indices[1] is -1, expected a block of the pool, less than 8");
    EXPECT_EQ(refused([](T& t, L&) { t.block_indices_begins = {0, 2, 1}; }),
              "block_indices_begins[2] is 1, expected at least 2");
    EXPECT_EQ(refused([](T& t, L&) { t.block_indices_begins = {0, 1, 4}; }),
              "block_indices_begins ends with 4, expected 3");
    EXPECT_EQ(refused([](T&, L& l) {
                  l.rotated_block_indices = {1, 1};
                  l.rotation_deltas = {2, 2};
              }),
              "rotated_block_indices[1] is 1, expected more than 1");
}

TEST(PagedAttentionOp, NoRotatedBlocksEqualRotationByNothing) {
    Fixture rotated;
    LayerTableValues& layer = rotated.layer();
    std::fill_n(layer.rotation_trig_lut.begin(), 4, 1.0f);  // row 0: cosines, sines of no angle
    std::fill_n(layer.rotation_trig_lut.begin() + 4, 4, 0.0f);
    layer.rotated_block_indices = {0, 1, 2};
    layer.rotation_deltas = {0, 0, 0};
    rotated.evaluate();
    const std::vector<float> expected = rotated.output();
    Fixture still;
    still.layer().rotated_block_indices = still.layer().rotation_deltas = {};
    still.layer().rotation_trig_lut = {};
    still.evaluate();
    for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(still.output()[i], expected[i], 1e-6) << i;
}

TEST(PagedAttentionOp, RefusesDeltasThatDoNotFitOrLeaveTheTable) {
    const auto deltas = [](size_t count, int32_t value) {
        Fixture fixture;
        fixture.layer().rotation_deltas.assign(count, value);
        return fixture.refusal();
    };
    EXPECT_EQ(deltas(1, 3), "nothing was refused");
    EXPECT_EQ(deltas(16, 3), "nothing was refused");
    EXPECT_EQ(deltas(2, 0), "rotation_deltas has 2 entries, expected 1 or 16");
    EXPECT_EQ(deltas(1, 4),
              "rotation_deltas has 4, expected a row of the layer's table, less than 4");
    EXPECT_EQ(deltas(1, -1),
              "rotation_deltas has -1, expected a row of the layer's table, less than 4");
    Fixture unknown;
    unknown.attributes.config.rotary_dims = 0;
    EXPECT_EQ(unknown.refusal(),
              "rotated_block_indices has 1 entries, expected none in a layer without rotary "
              "dimensions");
}

TEST(PagedAttentionOp, RefusesTensorsOfOtherShapesAndTypes) {
    Fixture wide;
    wide.floats(Input::query, {6, 24});
    EXPECT_EQ(wide.refusal(), "query is f32 [6,24], expected f32 [6,16]");
    Fixture blocks;
    blocks.inputs[Input::value_blocks] = ov::Tensor(ov::element::u8, {8, 1, 16, 31});
    EXPECT_NE(blocks.refusal().find("value_blocks has shape [8,1,16,31]"), std::string::npos);
    EXPECT_EQ(Fixture().refusal(ov::Tensor(ov::element::i64, {100})),
              "batch_tables has type i64, expected i32");
    Fixture few;
    few.inputs.pop_back();
    PagedAttention op;
    op.set_attributes(few.attributes);
    try {
        op.evaluate(few.outputs, few.inputs);
        FAIL() << "five inputs were taken";
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "got 5 inputs, expected 6");
    }
}

/// Whether the op takes its inputs; anything but a result and a refusal fails the test.
bool serves(Fixture& fixture, const ov::Tensor& tables) {
    try {
        fixture.evaluate(tables);
        return true;
    } catch (const InvalidArgument&) {
        return false;
    }
}

TEST(PagedAttentionOp, FuzzedTablesForAllLayersAreServedOrRefused) {
    const int32_t odd[] = {-2147483647 - 1, -1, 0, 1, 2, 3, 7, 8, 26, 50, 100, 120, 2147483647};
    std::mt19937 random(2);
    size_t served = 0, refused = 0;
    Fixture fixtures[] = {of_layer(Fixture(CacheFormat::f32)), of_layer(Fixture(CacheFormat::u8))};
    for (Fixture& fixture : fixtures) {
        fixture.layer().num_queries = 16;
        fixture.tables.layers[0].num_queries = 16;
    }
    for (int i = 0; i < 50000; ++i) {
        Fixture fixture = fixtures[random() % 2];
        // As many words as are needed, so that sanitizers see what is beyond.
        ov::Tensor tables = fixture.packed();
        ASSERT_EQ(tables.get_size(), 190u);
        for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
            tables.data<int32_t>()[random() % 106] = odd[random() % 13];
        ++(serves(fixture, tables) ? served : refused);
    }
    EXPECT_GT(served, 5000u);
    EXPECT_GT(refused, 10000u);
}

}  // namespace
}  // namespace pagewheel
