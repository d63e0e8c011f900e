#include "ops/paged_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ops/attention_tables.hpp"
#include "ops/layer_tables.hpp"

namespace pagewheel {
namespace {

using Input = PagedAttention::Input;
using kernels::CacheFormat;

/// A small batch in tensors: two sequences, one in its prompt, one decoding.
struct Fixture {
    static constexpr size_t block_size = 16, num_blocks = 8;
    PagedAttention::Attributes attributes;
    ov::TensorVector inputs = ov::TensorVector(Input::num_inputs);
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
        integers(Input::past_lens, {0, 20});
        integers(Input::subsequence_begins, {0, 5, 6});
        integers(Input::block_indices, {3, 1, 4});
        integers(Input::block_indices_begins, {0, 1, 3});
        integers(Input::score_windows, {0, 1});
        floats(Input::scores, {26});
        integers(Input::rotated_block_indices, {1});
        integers(Input::rotation_deltas, {2});
        inputs[Input::rotation_deltas].set_shape({1, 1});
        floats(Input::rotation_trig_lut, {4, 8});
        outputs.emplace_back(ov::element::f32, ov::Shape{0});
    }

    void integers(size_t input, const std::vector<int32_t>& values) {
        inputs[input] = ov::Tensor(ov::element::i32, {values.size()});
        std::copy(values.begin(), values.end(), inputs[input].data<int32_t>());
    }

    void floats(size_t input, const ov::Shape& shape) {
        std::mt19937 random(static_cast<unsigned>(input));
        std::normal_distribution<float> normal;
        inputs[input] = ov::Tensor(ov::element::f32, shape);
        for (size_t i = 0; i < inputs[input].get_size(); ++i)
            inputs[input].data<float>()[i] = normal(random);
    }

    void evaluate() {
        PagedAttention op;
        op.set_attributes(attributes);
        op.evaluate(outputs, inputs);
    }

    std::string refusal() {
        try {
            evaluate();
        } catch (const std::invalid_argument& error) {
            return error.what();
        }
        return "nothing was refused";
    }
};

TEST(PagedAttentionOp, ServesAValidBatch) {
    Fixture fixture;
    fixture.evaluate();
    EXPECT_EQ(fixture.outputs[0].get_shape(), (ov::Shape{6, 16}));
    for (size_t i = 0; i < fixture.outputs[0].get_size(); ++i)
        EXPECT_TRUE(std::isfinite(fixture.outputs[0].data<float>()[i]));
    // The second sequence asked for scores of its one query: probabilities of two heads.
    float mass = 0;
    for (size_t i = 5; i < 26; ++i) mass += fixture.inputs[Input::scores].data<float>()[i];
    EXPECT_NEAR(mass, 2.0f, 1e-5f);
}

/// The fixture's batch in the packed form, without its scores and rotation.
ov::TensorVector packed(const Fixture& fixture) {
    ov::TensorVector inputs(fixture.inputs.begin(), fixture.inputs.begin() + Input::past_lens);
    ov::TensorVector tables{ov::Tensor(ov::element::i32, {0})};
    AttentionTables().evaluate(
        tables, {fixture.inputs.begin() + Input::past_lens,
                 fixture.inputs.begin() + Input::past_lens + AttentionTables::num_tables});
    inputs.push_back(tables[0]);
    return inputs;
}

TEST(PagedAttentionOp, ThePackedFormGivesTheSame) {
    Fixture fixture;
    fixture.integers(Input::score_windows, {});
    fixture.integers(Input::rotated_block_indices, {});
    fixture.evaluate();
    const std::vector<float> expected(fixture.outputs[0].data<float>(),
                                      fixture.outputs[0].data<float>() + 6 * 16);
    fixture.inputs = packed(Fixture());
    fixture.evaluate();
    for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(fixture.outputs[0].data<float>()[i], expected[i]) << i;
}

TEST(PagedAttentionOp, ThePackedFormIsCheckedToo) {
    const auto refused = [](size_t input, const std::vector<int32_t>& values) {
        Fixture fixture;
        fixture.integers(input, values);
        fixture.inputs = packed(fixture);
        return fixture.refusal();
    };
    EXPECT_EQ(refused(Input::past_lens, {0, -1}), "past_lens[1] is -1, expected at least 0");
    EXPECT_EQ(refused(Input::past_lens, {}), "subsequence_begins has 3 entries, expected 1");
    EXPECT_EQ(refused(Input::block_indices, {3, 8, 4}),
              "block_indices[1] is 8, expected a block of the pool, less than 8");
    // Sizes that lead out of the tensor.
    for (const auto& [sizes, what] : {std::pair(std::vector<int32_t>{2, 3, 3},
                                                "the tables are i32 of 3 entries, expected i32 "
                                                "of at least 4"),
                                      std::pair(std::vector<int32_t>{0, -1, 0, 0},
                                                "table 1 has -1 entries, expected at most 0"),
                                      std::pair(std::vector<int32_t>{1, 1, 1, 0, 7, 7},
                                                "table 2 has 1 entries, expected at most 0")}) {
        Fixture fixture;
        fixture.inputs = packed(fixture);
        fixture.integers(Input::tables, sizes);
        EXPECT_EQ(fixture.refusal(), what);
    }
    Fixture fixture;
    fixture.inputs.pop_back();
    EXPECT_EQ(fixture.refusal(), "got 13 inputs, expected 14 or 6");
}

/// The fixture's batch with its tables as layer 1 of 3; layer 0 has other blocks and no rotation,
/// and nothing says anything about layer 2.
Fixture of_layer(const Fixture& separate) {
    using Tables = LayerTables;
    ov::Tensor packed(ov::element::i32, {400});
    std::fill_n(packed.data<int32_t>(), packed.get_size(), 0);
    LayerTablesWriter writer(packed.data<int32_t>(), 3);
    const auto add = [&](size_t section, Input input) {
        const ov::Tensor& tensor = separate.inputs[input];
        std::memcpy(writer.add(section, tensor.get_size()), tensor.data(), tensor.get_byte_size());
    };
    add(Tables::past_lens, Input::past_lens);
    add(Tables::subsequence_begins, Input::subsequence_begins);
    add(Tables::block_indices_begins, Input::block_indices_begins);
    add(Tables::score_windows, Input::score_windows);
    std::fill_n(writer.add(Tables::index_of(0, Tables::block_indices), 3), 3, 7);
    add(Tables::index_of(1, Tables::block_indices), Input::block_indices);
    add(Tables::index_of(1, Tables::rotated_block_indices), Input::rotated_block_indices);
    add(Tables::index_of(1, Tables::rotation_deltas), Input::rotation_deltas);
    add(Tables::index_of(1, Tables::rotation_trig_lut), Input::rotation_trig_lut);
    writer.begin_scores();
    writer.add(Tables::index_of(0, Tables::scores), 26);
    writer.add(Tables::index_of(1, Tables::scores), separate.inputs[Input::scores].get_size());
    Fixture fixture = separate;
    fixture.inputs.resize(PagedAttention::num_packed_inputs);
    fixture.inputs[Input::tables] = packed;
    fixture.attributes.layer = 1;
    return fixture;
}

std::vector<float> values_of(const ov::Tensor& tensor) {
    const auto* values = tensor.data<const float>();
    return {values, values + tensor.get_size()};
}

/// The scores of layer 1.
std::vector<float> scores_of(const Fixture& fixture) {
    const auto* words = fixture.inputs[Input::tables].data<const int32_t>();
    const size_t section = LayerTables::index_of(1, LayerTables::scores);
    const auto size = size_t(words[3 + 2 * section]);
    std::vector<float> scores(size);
    std::memcpy(scores.data(), words + words[2 + 2 * section], 4 * size);
    return scores;
}

TEST(PagedAttentionOp, ALayerOfTablesForAllLayersIsItsOwn) {
    for (const size_t width : {1, 16}) {
        Fixture separate;
        separate.integers(Input::rotation_deltas, std::vector<int32_t>(width, 2));
        if (width > 1) separate.inputs[Input::rotation_deltas].data<int32_t>()[3] = 1;
        separate.inputs[Input::rotation_deltas].set_shape({1, width});
        Fixture packed = of_layer(separate);
        for (const size_t cache : {Input::key_blocks, Input::value_blocks}) {
            packed.inputs[cache] = ov::Tensor(ov::element::u8, separate.inputs[cache].get_shape());
            separate.inputs[cache].copy_to(packed.inputs[cache]);
        }
        packed.outputs[0] = ov::Tensor(ov::element::f32, {0});
        separate.evaluate();
        packed.evaluate();
        EXPECT_EQ(values_of(packed.outputs[0]), values_of(separate.outputs[0]));
        const std::vector<float> scores = scores_of(packed),
                                 expected = values_of(separate.inputs[Input::scores]);
        // The first sequence asked for none.
        EXPECT_TRUE(std::equal(scores.begin() + 5, scores.end(), expected.begin() + 5));
    }
}

TEST(PagedAttentionOp, ALayerThatReadsAnothersCacheGivesNoScores) {
    Fixture fixture = of_layer(Fixture());
    fixture.attributes.config.write_kv_cache = false;
    const std::vector<float> before = scores_of(fixture);
    fixture.evaluate();
    EXPECT_EQ(scores_of(fixture), before);
}

TEST(PagedAttentionOp, TablesForAllLayersAreChecked) {
    const auto refused = [](Input input, const std::vector<int32_t>& values) {
        Fixture fixture;
        fixture.integers(input, values);
        return of_layer(fixture).refusal();
    };
    EXPECT_EQ(of_layer(Fixture()).refusal(), "nothing was refused");
    EXPECT_EQ(refused(Input::past_lens, {0, -1}), "past_lens[1] is -1, expected at least 0");
    EXPECT_EQ(refused(Input::block_indices, {3, 8, 4}),
              "block_indices[1] is 8, expected a block of the pool, less than 8");
    EXPECT_EQ(refused(Input::score_windows, {0, -2}),
              "score_aggregation_window[1] is -2, expected at least 0");
    EXPECT_EQ(refused(Input::rotated_block_indices, {3}),
              "rotated_block_indices[0] is 3, expected less than 3");
    EXPECT_EQ(refused(Input::rotation_deltas, {4}),
              "rotation_deltas has 4, expected a row of the layer's table, less than 4");
    EXPECT_EQ(refused(Input::rotation_deltas, {0, 0, 0, 0}),
              "rotation_deltas is i32 [1,4], expected i32 [1, 1] or [1, 16]");
    Fixture few;
    few.floats(Input::scores, {25});
    EXPECT_EQ(of_layer(few).refusal(), "scores is f32 of 25 entries, expected f32 of at least 26");
    Fixture lut;
    lut.floats(Input::rotation_trig_lut, {1, 31});
    EXPECT_EQ(of_layer(lut).refusal(), "rotation_trig_lut is f32 [31], expected f32 [rows, 8]");
}

TEST(PagedAttentionOp, SectionsThatLeadOutOfTheTablesAreRefused) {
    const auto refused = [](size_t word, int32_t value) {
        Fixture fixture = of_layer(Fixture());
        fixture.inputs[Input::tables].data<int32_t>()[word] = value;
        return fixture.refusal();
    };
    EXPECT_EQ(refused(0, 1), "the tables have 1 layers, expected more than 1");
    EXPECT_EQ(refused(0, 1000), "the tables are 400 entries, expected at least 10010");
    EXPECT_EQ(refused(1, 401), "scores begin at 401, expected 40 to 400");
    EXPECT_EQ(refused(2, 39), "section 0 has 2 entries from 39 on, expected them in 40 to 90");
    EXPECT_EQ(refused(3, -1), "section 0 has -1 entries from 40 on, expected them in 40 to 90");
    EXPECT_EQ(refused(3, 2147483647),
              "section 0 has 2147483647 entries from 40 on, expected them in 40 to 90");
    // Scores over the tables would change what was checked.
    const size_t scores = 2 + 2 * LayerTables::index_of(1, LayerTables::scores);
    EXPECT_EQ(refused(scores, 60),
              "section 13 has 26 entries from 60 on, expected them in 90 to 400");
}

TEST(PagedAttentionOp, NamesBothValuesOfWhatItRefuses) {
    const auto refused = [](size_t input, const std::vector<int32_t>& values) {
        Fixture fixture;
        fixture.integers(input, values);
        return fixture.refusal();
    };
    EXPECT_EQ(refused(Input::past_lens, {0, -1}), "past_lens[1] is -1, expected at least 0");
    EXPECT_EQ(refused(Input::past_lens, {0, 32}),
              "sequence 1 has a context of 33 tokens, its blocks hold 32");
    EXPECT_EQ(refused(Input::past_lens, {0, 2147483647}),
              "sequence 1 has a context of 2147483648 tokens, its blocks hold 32");
    EXPECT_EQ(refused(Input::subsequence_begins, {0, 6, 6}),
              "subsequence_begins[2] is 6, expected at least 7");
    EXPECT_EQ(refused(Input::subsequence_begins, {1, 5, 6}),
              "subsequence_begins begins with 1, expected 0");
    EXPECT_EQ(refused(Input::subsequence_begins, {0, 5, 7}),
              "subsequence_begins ends with 7, expected 6");
    EXPECT_EQ(refused(Input::subsequence_begins, {0, 6}),
              "subsequence_begins has 2 entries, expected 3");
    EXPECT_EQ(refused(Input::block_indices, {3, 8, 4}),
              "block_indices[1] is 8, expected a block of the pool, less than 8");
    EXPECT_EQ(refused(Input::block_indices, {3, -1, 4}),
              "block_indices[1] is -1, expected a block of the pool, less than 8");
    EXPECT_EQ(refused(Input::block_indices_begins, {0, 2, 1}),
              "block_indices_begins[2] is 1, expected at least 2");
    EXPECT_EQ(refused(Input::score_windows, {0, -2}),
              "score_aggregation_window[1] is -2, expected at least 0");
    EXPECT_EQ(refused(Input::rotated_block_indices, {3}),
              "rotated_block_indices[0] is 3, expected less than 3");
}

TEST(PagedAttentionOp, NoRotatedBlocksEqualRotationByNothing) {
    Fixture turned;
    auto* lut = turned.inputs[Input::rotation_trig_lut].data<float>();
    std::fill_n(lut, 4, 1.0f);  // row 0: cosines, then sines of no angle
    std::fill_n(lut + 4, 4, 0.0f);
    turned.integers(Input::rotated_block_indices, {0, 1, 2});
    turned.integers(Input::rotation_deltas, {0, 0, 0});
    turned.inputs[Input::rotation_deltas].set_shape({3, 1});
    turned.evaluate();
    for (const ov::Shape& deltas : {ov::Shape{0, 1}, ov::Shape{0, 16}}) {
        Fixture still;
        still.integers(Input::rotated_block_indices, {});
        still.inputs[Input::rotation_deltas] = ov::Tensor(ov::element::i32, deltas);
        still.inputs[Input::rotation_trig_lut] = ov::Tensor(ov::element::f32, {0, 0});
        still.evaluate();
        for (size_t i = 0; i < still.outputs[0].get_size(); ++i)
            EXPECT_NEAR(still.outputs[0].data<float>()[i], turned.outputs[0].data<float>()[i], 1e-6)
                << i;
    }
}

TEST(PagedAttentionOp, RefusesDeltasThatDoNotBroadcastOrLeaveTheTable) {
    const auto deltas = [](const ov::Shape& shape, int32_t value) {
        Fixture fixture;
        fixture.inputs[Input::rotation_deltas] = ov::Tensor(ov::element::i32, shape);
        std::fill_n(fixture.inputs[Input::rotation_deltas].data<int32_t>(), ov::shape_size(shape),
                    value);
        return fixture.refusal();
    };
    EXPECT_EQ(deltas({1, 1}, 3), "nothing was refused");
    EXPECT_EQ(deltas({1, 16}, 3), "nothing was refused");
    EXPECT_EQ(deltas({1, 4}, 0), "rotation_deltas is i32 [1,4], expected i32 [1, 1] or [1, 16]");
    EXPECT_EQ(deltas({2, 1}, 0), "rotation_deltas is i32 [2,1], expected i32 [1, 1] or [1, 16]");
    EXPECT_EQ(deltas({1, 1}, 4),
              "rotation_deltas has 4, expected a row of the layer's table, less than 4");
    EXPECT_EQ(deltas({1, 1}, -1),
              "rotation_deltas has -1, expected a row of the layer's table, less than 4");
    Fixture offset;
    offset.attributes.lut_row_offset = 2;
    EXPECT_EQ(offset.refusal(),
              "rotation_deltas has 2, expected a row of the layer's table, less than 2");
    Fixture unknown;
    unknown.attributes.config.rotary_dims = 0;
    EXPECT_NE(unknown.refusal().find("rotation_trig_lut"), std::string::npos);
}

TEST(PagedAttentionOp, RefusesTensorsOfOtherShapesAndTypes) {
    Fixture wide;
    wide.floats(Input::query, {6, 24});
    EXPECT_EQ(wide.refusal(), "query is f32 [6,24], expected f32 [6,16]");
    Fixture blocks;
    blocks.inputs[Input::value_blocks] = ov::Tensor(ov::element::u8, {8, 1, 16, 31});
    EXPECT_NE(blocks.refusal().find("value_blocks has shape [8,1,16,31]"), std::string::npos);
    Fixture scores;
    scores.floats(Input::scores, {25});
    EXPECT_EQ(scores.refusal(), "scores is f32 of 25 entries, expected f32 of at least 26");
    Fixture type;
    type.inputs[Input::past_lens] = ov::Tensor(ov::element::i64, {2});
    EXPECT_EQ(type.refusal(), "past_lens has type i64, expected i32");
}

/// Whether the op takes its inputs; anything but a result and a refusal fails the test.
bool serves(Fixture& fixture) {
    try {
        fixture.evaluate();
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    }
}

TEST(PagedAttentionOp, FuzzedMetadataIsServedOrRefusedAndNeverFollowedOutOfBounds) {
    // Sanitizers see what would be read or written outside; here, every case ends.
    const Input metadata[] = {Input::past_lens,      Input::subsequence_begins,
                              Input::block_indices,  Input::block_indices_begins,
                              Input::score_windows,  Input::rotated_block_indices,
                              Input::rotation_deltas};
    const int32_t odd[] = {-2147483647 - 1, -1, 0, 1, 2, 3, 5, 6, 7, 8, 15, 16, 17, 31, 32,
                           2147483647};
    std::mt19937 random(1);
    size_t served = 0, refused = 0;
    Fixture fixtures[] = {Fixture(CacheFormat::f32), Fixture(CacheFormat::u8),
                          Fixture(CacheFormat::u4), Fixture(CacheFormat::bf16)};
    for (int i = 0; i < 100000; ++i) {
        Fixture fixture = fixtures[random() % 4];
        for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
            const Input input = metadata[random() % 7];
            const ov::Tensor& old = fixture.inputs[input];
            std::vector<int32_t> values(old.data<int32_t>(), old.data<int32_t>() + old.get_size());
            const unsigned kind = random() % 8;
            if (kind == 0) values.push_back(odd[random() % 16]);
            if (kind == 1 && !values.empty()) values.pop_back();
            if (kind > 1 && !values.empty()) values[random() % values.size()] = odd[random() % 16];
            fixture.integers(input, values);
            if (input == Input::rotation_deltas)
                fixture.inputs[input].set_shape({values.size(), 1});
        }
        ++(serves(fixture) ? served : refused);
    }
    EXPECT_GT(served, 5000u);
    EXPECT_GT(refused, 50000u);
}

TEST(PagedAttentionOp, FuzzedTablesForAllLayersAreServedOrRefused) {
    const int32_t odd[] = {-2147483647 - 1, -1, 0, 1, 2, 3, 7, 8, 26, 40, 90, 116, 400, 2147483647};
    std::mt19937 random(2);
    size_t served = 0, refused = 0;
    const Fixture fixtures[] = {of_layer(Fixture(CacheFormat::f32)),
                                of_layer(Fixture(CacheFormat::u8))};
    for (int i = 0; i < 50000; ++i) {
        Fixture fixture = fixtures[random() % 2];
        // A vector's worth of words exactly, so that sanitizers see what is beyond.
        const ov::Tensor& whole = fixture.inputs[Input::tables];
        ov::Tensor tables(ov::element::i32, {142});
        std::memcpy(tables.data(), whole.data(), tables.get_byte_size());
        for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
            tables.data<int32_t>()[random() % 90] = odd[random() % 14];
        fixture.inputs[Input::tables] = tables;
        ++(serves(fixture) ? served : refused);
    }
    EXPECT_GT(served, 5000u);
    EXPECT_GT(refused, 10000u);
}

}  // namespace
}  // namespace pagewheel
