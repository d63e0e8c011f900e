// The pass that computes for logits indices what only logits need: operation by operation, beside
// the same graph for all rows.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "graph/token_layout.hpp"
#include "model/openvino_core.hpp"
#include "openvino/opsets/opset13.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

using namespace ov::opset13;
using Output = ov::Output<ov::Node>;

constexpr int64_t width = 12, vocabulary = 20;

Output ints(const std::vector<int64_t>& values) {
    return Constant::create(ov::element::i64, {values.size()}, values);
}
Output one_int(int64_t value) {
    return Constant::create(ov::element::i64, {}, {value});
}
Output number(float value) {
    return Constant::create(ov::element::f32, {}, {value});
}
Output random_constant(const ov::Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.5f);
    std::vector<float> values(ov::shape_size(shape));
    for (float& value : values) value = normal(random);
    return Constant::create(ov::element::f32, shape, values);
}
template <class Op, class... Arguments>
Output make(const Arguments&... arguments) {
    return std::make_shared<Op>(arguments...)->output(0);
}
Output reshaped(const Output& x, const std::vector<int64_t>& shape) {
    return make<Reshape>(x, ints(shape), true);
}

/// [tokens, 1, 12] to a value from which [tokens, 1, 12] follows by a Reshape.
using Build = std::function<Output(const Output&)>;
/// The same; what it adds to the other results is computed for all rows, as keys and values are.
using BuildWithOthers = std::function<Output(const Output&, ov::ResultVector& others)>;

/// What is between an embedding with a matrix and the vocabulary's matrix.
std::shared_ptr<ov::Model> decoder(const BuildWithOthers& build) {
    ov::ResultVector results;
    const auto ids = std::make_shared<Parameter>(ov::element::i64, ov::PartialShape{-1});
    ids->set_friendly_name("input_ids");
    ids->output(0).set_names({"input_ids"});
    const Output embedded = make<Gather>(random_constant({vocabulary, width}, 1),
                                         make<Unsqueeze>(ids->output(0), one_int(1)), one_int(0));
    const Output probe = make<MatMul>(embedded, random_constant({width, width}, 2), false, true);
    const Output between = reshaped(build(probe, results), {-1, 1, width});
    const Output logits =
        make<MatMul>(between, random_constant({vocabulary, width}, 3), false, true);
    const auto result = std::make_shared<Result>(logits);
    result->output(0).set_names({"logits"});
    results.push_back(result);
    return std::make_shared<ov::Model>(results, ov::ParameterVector{ids});
}

/// A compiled decoder.
class Decoder {
public:
    explicit Decoder(const std::shared_ptr<ov::Model>& model)
        : m_request(
              openvino_core()
                  .compile_model(model, "CPU", {{ov::hint::inference_precision.name(), "f32"}})
                  .create_infer_request()) {}

    /// Logits of the rows of tokens.
    std::vector<float> run(const std::vector<int64_t>& tokens, const std::vector<int64_t>& rows) {
        for (const auto& [name, values] :
             {std::pair("input_ids", &tokens), {"sampled_tokens_indices", &rows}}) {
            ov::Tensor tensor(ov::element::i64, {values->size()});
            std::copy(values->begin(), values->end(), tensor.data<int64_t>());
            m_request.set_tensor(name, tensor);
        }
        m_request.start_async();
        m_request.wait();
        const ov::Tensor logits = m_request.get_tensor("logits");
        EXPECT_EQ(logits.get_shape(), (ov::Shape{rows.size(), size_t(vocabulary)}));
        return {logits.data<float>(), logits.data<float>() + logits.get_size()};
    }

private:
    ov::InferRequest m_request;
};

struct Case {
    const char* name;
    Build build;
};

/// The report of the pass, after the logits of several rows were the same with it as without.
FastPrefillReport compare(const char* name, const BuildWithOthers& build) {
    const auto whole = decoder(build);
    std::shared_ptr<ov::Model> trimmed = decoder(build);
    gather_logits(whole);
    gather_logits(trimmed);
    const FastPrefillReport report = skip_unread_rows(trimmed, {});
    Decoder decoder_of_all(whole), decoder_of_asked(trimmed);
    const std::vector<int64_t> tokens{3, 19, 0, 7, 7, 12, 5};
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{6}, {1, 4, 5}, {}, {0, 1, 2, 3, 4, 5, 6}}) {
        const std::vector<float> expected = decoder_of_all.run(tokens, rows);
        const std::vector<float> logits = decoder_of_asked.run(tokens, rows);
        EXPECT_EQ(logits.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i)
            EXPECT_NEAR(logits[i], expected[i], 1e-4f) << name << ", logit " << i;
    }
    return report;
}

FastPrefillReport compare(const Case& test) {
    return compare(test.name, [&](const Output& x, ov::ResultVector&) { return test.build(x); });
}

Output experts(const Output& x) {
    const Output flat = reshaped(x, {-1, width});
    const Output each = make<Reshape>(make<Tile>(flat, ints({3, 1})), ints({3, -1, width}), false);
    const Output weighed = make<MatMul>(each, random_constant({3, width, width}, 5), false, true);
    const auto best =
        std::make_shared<TopK>(make<MatMul>(flat, random_constant({3, width}, 6), false, true),
                               one_int(2), 1, "max", "value");
    const auto shape =
        make<ShapeOf>(make<MatMul>(flat, random_constant({3, width}, 6), false, true));
    const Output routed =
        make<ScatterElementsUpdate>(make<Broadcast>(number(0), shape), best->output(1),
                                    make<Softmax>(best->output(0), int64_t(1)), one_int(1));
    const Output factors = make<Unsqueeze>(make<Transpose>(routed, ints({1, 0})), one_int(2));
    return make<ReduceSum>(make<Multiply>(weighed, factors), ints({0}), false);
}

Output norm(const Output& x) {
    const Output mean = make<ReduceMean>(make<Power>(x, number(2)), ints({-1}), true);
    return make<Multiply>(x, make<Divide>(number(1), make<Sqrt>(make<Add>(mean, number(1e-3f)))));
}

/// x[1:] = update of streams [3, tokens, 1, 4], as PyTorch's assignment to a slice is exported;
/// `shaped` has x's shape.
Output assigned(const Output& x, const Output& update, const Output& shaped,
                ov::op::v15::ScatterNDUpdate::Reduction reduction =
                    ov::op::v15::ScatterNDUpdate::Reduction::NONE) {
    const Output shape = make<ShapeOf>(shaped);
    const Output count = make<ReduceProd>(shape, one_int(0), false);
    const Output numbers =
        make<Reshape>(make<Range>(one_int(0), count, one_int(1), ov::element::i64), shape, false);
    const Output chosen = make<Slice>(
        numbers, ints({1}), ints({std::numeric_limits<int64_t>::max()}), ints({1}), ints({0}));
    const auto flat = [](const Output& each) { return make<Reshape>(each, ints({-1}), false); };
    const Output scattered = std::make_shared<ov::op::v15::ScatterNDUpdate>(
        flat(x), make<Reshape>(chosen, ints({-1, 1}), false), flat(update), reduction);
    return make<Reshape>(scattered, shape, false);
}

/// Streams apart, the second and third moved by the first, and back.
Output streams(const Output& x) {
    const Output apart = make<Transpose>(reshaped(x, {0, 0, 3, 4}), ints({2, 0, 1, 3}));
    const auto others = [](const Output& all) {
        return make<Slice>(all, ints({1}), ints({3}), ints({1}), ints({0}));
    };
    const Output first = make<Tanh>(make<Gather>(apart, one_int(0), one_int(0)));
    const Output once = assigned(apart, make<Add>(others(apart), first), apart);
    const Output update = make<Add>(others(once), first);
    const Output same = make<Broadcast>(update, make<ShapeOf>(others(apart)));
    return make<Transpose>(assigned(once, same, apart), ints({1, 2, 0, 3}));
}

const std::vector<Case>& by_token() {
    static const std::vector<Case> cases{
        {"Relu", [](const Output& x) { return make<Relu>(x); }},
        {"Swish", [](const Output& x) { return make<Swish>(x); }},
        {"Gelu", [](const Output& x) { return make<Gelu>(x); }},
        {"Clamp", [](const Output& x) { return make<Clamp>(x, -0.5, 0.5); }},
        {"Add of a row for all",
         [](const Output& x) { return make<Add>(x, random_constant({width}, 4)); }},
        {"Select",
         [](const Output& x) {
             return make<Select>(make<Greater>(x, number(0)), x, make<Negative>(x));
         }},
        {"norm", norm},
        {"heads apart and back",
         [](const Output& x) {
             const Output heads = make<Transpose>(reshaped(x, {0, 0, 3, 4}), ints({0, 2, 1, 3}));
             return make<Transpose>(norm(heads), ints({0, 2, 1, 3}));
         }},
        {"Reshape by lengths of dimensions",
         [](const Output& x) {
             const Output count = make<Gather>(make<ShapeOf>(x), ints({0}), one_int(0));
             return make<Reshape>(
                 x, make<Concat>(ov::OutputVector{count, ints({4}), ints({3})}, int64_t(0)), false);
         }},
        {"a slice, transposed",
         [](const Output& x) {
             const auto half = [&](int64_t begin) {
                 return make<Slice>(x, ints({begin}), ints({begin + 6}), ints({1}), ints({2}));
             };
             return make<Concat>(ov::OutputVector{make<Negative>(half(6)), half(0)}, int64_t(2));
         }},
        {"Split",
         [](const Output& x) {
             const auto split = std::make_shared<Split>(x, one_int(-1), 3);
             return make<Concat>(
                 ov::OutputVector{split->output(2), split->output(0), split->output(1)},
                 int64_t(-1));
         }},
        {"VariadicSplit",
         [](const Output& x) {
             const auto split = std::make_shared<VariadicSplit>(x, one_int(2), ints({4, -1}));
             return make<Concat>(ov::OutputVector{split->output(1), split->output(0)}, int64_t(2));
         }},
        {"Squeeze of a dimension that is named twice",
         [](const Output& x) {
             return make<Squeeze>(make<Tanh>(make<Unsqueeze>(x, ints({0, 1}))), ints({0, -5}));
         }},
        {"Squeeze and Unsqueeze",
         [](const Output& x) {
             return make<Unsqueeze>(make<Tanh>(make<Squeeze>(x, ints({1}))), ints({0, 2}));
         }},
        {"Softmax over channels", [](const Output& x) { return make<Softmax>(x, int64_t(-1)); }},
        {"Gather of channels",
         [](const Output& x) {
             return make<Gather>(x, ints({11, 3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 10}), one_int(2));
         }},
        {"Broadcast of what all share",
         [](const Output& x) {
             return make<Add>(x,
                              make<Broadcast>(random_constant({1, 1, width}, 7), make<ShapeOf>(x)));
         }},
        {"products of one token's matrices",
         [](const Output& x) {
             const Output square = reshaped(x, {0, 3, 4});
             return make<MatMul>(make<MatMul>(square, square, false, true), square, false, false);
         }},
        {"experts", experts},
        {"assignments to slices", streams},
        {"lengths computed of lengths",
         [](const Output& x) {
             const Output channels = make<Gather>(make<ShapeOf>(x), ints({2}), one_int(0));
             const Output half = make<Divide>(channels, ints({2}));
             const Output front = make<Slice>(x, ints({0}), half, ints({1}), ints({2}));
             const Output back = make<Slice>(x, half, channels, ints({1}), ints({2}));
             return make<Concat>(ov::OutputVector{back, front}, int64_t(2));
         }},
        {"all rows that another value has",
         [](const Output& x) {
             const Output flat = reshaped(x, {-1, width});
             return make<Slice>(make<Relu>(flat), ints({0, 0}), make<ShapeOf>(flat), ints({1, 1}),
                                ints({0, 1}));
         }},
        {"layer norm",
         [](const Output& x) {
             return make<MVN>(x, ints({-1}), true, 1e-5f, ov::op::MVNEpsMode::INSIDE_SQRT);
         }},
        {"Tile to another rank",
         [](const Output& x) {
             return make<ReduceSum>(make<Tile>(x, ints({2, 1, 1, 1})), ints({0}), false);
         }},
        {"GatherElements",
         [](const Output& x) {
             const auto best = std::make_shared<TopK>(x, one_int(width), 2, "max", "value");
             return make<GatherElements>(make<Tanh>(x), best->output(1), int64_t(2));
         }},
    };
    return cases;
}

TEST(FastPrefill, WhatIsComputedTokenByTokenIsComputedForLogitsIndicesAlone) {
    for (const Case& test : by_token()) {
        const FastPrefillReport report = compare(test);
        EXPECT_EQ(report.work_skipped, 1) << test.name;
        EXPECT_TRUE(report.why.empty()) << test.name << ": " << report.why.front();
    }
}

const std::vector<Case>& across_tokens() {
    static const std::vector<Case> cases{
        {"CumSum", [](const Output& x) { return make<CumSum>(x, one_int(0)); }},
        {"Softmax over tokens", [](const Output& x) { return make<Softmax>(x, int64_t(0)); }},
        {"mean of tokens",
         [](const Output& x) { return make<Add>(x, make<ReduceMean>(x, ints({0}), true)); }},
        {"number of tokens",
         [](const Output& x) {
             const Output count = make<Gather>(make<ShapeOf>(x), ints({0}), one_int(0));
             return make<Multiply>(x, make<Convert>(count, ov::element::f32));
         }},
        {"products of tokens",
         [](const Output& x) {
             const Output flat = reshaped(x, {-1, width});
             return make<MatMul>(make<MatMul>(flat, flat, false, true), flat, false, false);
         }},
        {"the last token first",
         [](const Output& x) {
             const auto part = [&](int64_t begin, int64_t end) {
                 return make<Slice>(x, ints({begin}), ints({end}), ints({1}), ints({0}));
             };
             return make<Concat>(
                 ov::OutputVector{part(-1, std::numeric_limits<int64_t>::max()), part(0, -1)},
                 int64_t(0));
         }},
        {"tokens among channels",
         [](const Output& x) {
             const Output mixed = make<Transpose>(reshaped(x, {-1, width}), ints({1, 0}));
             return reshaped(mixed, {-1, width});
         }},
        {"layer norm over tokens",
         [](const Output& x) {
             return make<MVN>(x, ints({0}), true, 1e-5f, ov::op::MVNEpsMode::INSIDE_SQRT);
         }},
        {"a slice that is assigned what another has",
         [](const Output& x) {
             // The indices are of a value of another shape: elements move between tokens.
             const Output apart = make<Transpose>(reshaped(x, {0, 0, 3, 4}), ints({2, 0, 1, 3}));
             const Output transposed = make<Transpose>(apart, ints({0, 1, 3, 2}));
             const Output back = make<Slice>(apart, ints({1}), ints({3}), ints({1}), ints({0}));
             return make<Transpose>(assigned(transposed, make<Tanh>(back), apart),
                                    ints({1, 2, 0, 3}));
         }},
        {"Split of tokens",
         [](const Output& x) {
             // Of twice all tokens, so that halves have as many.
             const auto half =
                 std::make_shared<Split>(make<Tile>(x, ints({2, 1, 1})), one_int(0), 2);
             return make<Add>(half->output(0), half->output(1));
         }},
        {"another token's row",
         [](const Output& x) { return make<Add>(x, make<Gather>(x, ints({0}), one_int(0))); }},
        {"rows put into other rows",
         [](const Output& x) {
             const Output zeros =
                 Constant::create(ov::element::i64, {1, 1, width}, std::vector<int64_t>(width, 0));
             const Output first = make<Gather>(make<Tanh>(x), ints({0}), one_int(0));
             return make<ScatterElementsUpdate>(x, zeros, first, one_int(0));
         }},
        {"noise",
         [](const Output& x) {
             const auto noise = std::make_shared<RandomUniform>(make<ShapeOf>(x), number(0),
                                                                number(1), ov::element::f32, 5, 7);
             return make<Add>(x, make<Floor>(noise->output(0)));
         }},
        {"an axis that is something else in another type",
         [](const Output& x) {
             // 0.5 is true, and that is 1.
             const Output axis = make<Convert>(
                 make<Convert>(Constant::create(ov::element::f32, {1}, {0.5f})->output(0),
                               ov::element::boolean),
                 ov::element::i64);
             const Output transposed = make<Transpose>(x, ints({1, 0, 2}));
             const Output best = make<ReduceMax>(transposed, axis, true);
             return make<Add>(x, make<Transpose>(best, ints({1, 0, 2})));
         }},
        {"a scatter that adds",
         [](const Output& x) {
             const Output apart = make<Transpose>(reshaped(x, {0, 0, 3, 4}), ints({2, 0, 1, 3}));
             const Output others = make<Slice>(apart, ints({1}), ints({3}), ints({1}), ints({0}));
             return make<Transpose>(assigned(apart, make<Tanh>(others), apart,
                                             ov::op::v15::ScatterNDUpdate::Reduction::SUM),
                                    ints({1, 2, 0, 3}));
         }},
        {"lengths in a matrix",
         [](const Output& x) {
             // Rows of [[tokens, 1], [1, 12]] gathered along the second dimension: 1 and 12.
             const Output lengths = make<Concat>(
                 ov::OutputVector{make<Gather>(make<ShapeOf>(x), ints({0, 1}), one_int(0)),
                                  ints({1, width})},
                 int64_t(0));
             const Output matrix = make<Reshape>(lengths, ints({2, 2}), false);
             const Output column = make<Gather>(matrix, one_int(1), one_int(1));
             const Output last = make<Gather>(column, ints({1}), one_int(0));
             return make<Reshape>(make<Relu>(x),
                                  make<Concat>(ov::OutputVector{ints({-1, 1}), last}, int64_t(0)),
                                  false);
         }},
        {"best of all tokens",
         [](const Output& x) {
             const auto best = std::make_shared<TopK>(x, one_int(1), 0, "max", "value");
             return make<Add>(x, best->output(0));
         }},
    };
    return cases;
}

TEST(FastPrefill, WhatMixesTokensIsComputedForAllOfThemAndSaidSo) {
    for (const Case& test : across_tokens()) {
        const FastPrefillReport report = compare(test);
        EXPECT_EQ(report.work_skipped, 0) << test.name;
        ASSERT_EQ(report.why.size(), 1u) << test.name;
        EXPECT_NE(report.why[0].find(") is not known to keep tokens apart"), std::string::npos)
            << report.why[0];
    }
}

TEST(FastPrefill, OperationsInAnyOrderAreTrimmedUnlessOneMixesTokens) {
    std::mt19937 random(15);
    const auto square = [](const Output& x) {
        return make<MatMul>(x, random_constant({width, width}, 8), false, true);
    };
    for (int round = 0; round < 24; ++round) {
        std::vector<const Case*> chosen;
        std::string names;
        bool mixed = false;
        for (size_t i = 0, count = 1 + random() % 5; i < count; ++i) {
            const bool mixes = random() % 8 == 0;
            const auto& cases = mixes ? across_tokens() : by_token();
            chosen.push_back(&cases[random() % cases.size()]);
            names += std::string(chosen.back()->name) + ", ";
            mixed = mixed || mixes;
        }
        const Case test{names.c_str(), [&](Output x) {
                            for (const Case* each : chosen)
                                x = square(norm(reshaped(each->build(x), {-1, 1, width})));
                            return x;
                        }};
        EXPECT_EQ(compare(test).work_skipped, mixed ? 0 : 1) << names;
    }
}

Output keep_all(const Output& x, ov::ResultVector& others) {
    others.push_back(std::make_shared<Result>(x));
    return x;
}

TEST(FastPrefill, ARowThatCrossesTheBorderIsGatheredOnceAndItsNormIsComputedBehindIt) {
    const BuildWithOthers layer = [](const Output& x, ov::ResultVector& others) {
        const Output normed = norm(x);
        keep_all(make<MatMul>(normed, random_constant({width, width}, 9), false, true), others);
        return make<Add>(make<Add>(x, make<Relu>(normed)), make<Tanh>(x));
    };
    EXPECT_EQ(compare("layer", layer).work_skipped, 0);
    std::shared_ptr<ov::Model> model = decoder(layer);
    gather_logits(model);
    skip_unread_rows(model, {});
    size_t gathers = 0;
    for (const auto& parameter : model->get_parameters())
        if (parameter->get_friendly_name() == "sampled_tokens_indices")
            gathers = parameter->output(0).get_target_inputs().size();
    EXPECT_EQ(gathers, 1u);
}

TEST(FastPrefill, RowsThatLieSeveralTimesAlongADimensionAreNoBorder) {
    const BuildWithOthers build = [](const Output& x, ov::ResultVector& others) {
        const Output twice = make<Tile>(reshaped(x, {-1, width}), ints({2, 1}));
        keep_all(twice, others);
        const Output apart = make<Reshape>(make<Relu>(twice), ints({2, -1, width}), false);
        const Output sum = make<ReduceSum>(apart, ints({0}), false);
        return make<MatMul>(sum, random_constant({width, width}, 12), false, true);
    };
    // Gathered where the tokens lie once again: the last matrix alone has logits indices.
    EXPECT_EQ(compare("twice", build).work_skipped, 0.5);
}

/// What `count` of values say about their rows is found out one after the other: each is only
/// wrong once the one before it has been left to all rows.
BuildWithOthers chain(size_t count) {
    return [=](const Output& x, ov::ResultVector& others) {
        Output before = keep_all(make<Tanh>(x), others), sum = x;
        for (size_t i = 0; i < count; ++i) {
            const Output value = make<Multiply>(make<Relu>(x), number(0.01f * float(i + 1)));
            const Output channel = make<Slice>(value, ints({0}), ints({1}), ints({1}), ints({2}));
            sum = make<Add>(sum, make<Broadcast>(channel, make<ShapeOf>(before)));
            before = value;
        }
        return make<MatMul>(sum, random_constant({width, width}, 10), false, true);
    };
}

TEST(FastPrefill, WhatManyReadOftenIsSearchedOnce) {
    // Followed one by one, what leads to the hidden state would be 200^6 ways.
    const BuildWithOthers build = [](const Output& x, ov::ResultVector& others) {
        Output wide = x;
        for (int i = 0; i < 6; ++i)
            wide = make<Slice>(make<Concat>(ov::OutputVector(200, wide), int64_t(2)), ints({0}),
                               ints({width}), ints({1}), ints({2}));
        keep_all(wide, others);
        return make<MatMul>(make<Add>(x, wide), random_constant({width, width}, 13), false, true);
    };
    EXPECT_EQ(compare("wide", build).work_skipped, 0.5);
}

TEST(FastPrefill, AGraphMadeToTakeLongIsLeftAsItIs) {
    EXPECT_EQ(compare("short chain", chain(10)).work_skipped, 0.5);
    // More than the 32 searches after which it is given up.
    EXPECT_EQ(compare("long chain", chain(40)).work_skipped, 0);
}

}  // namespace
}  // namespace pagewheel
