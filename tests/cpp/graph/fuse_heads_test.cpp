// Norms and rotary embeddings of heads that become part of the projections before them, and
// attention's gates of those behind.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "graph/passes.hpp"
#include "openvino/opsets/opset13.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

using namespace ov::opset13;
using Node = std::shared_ptr<ov::Node>;

constexpr int64_t hidden = 64;

Node integers(const std::vector<int64_t>& values) {
    return Constant::create(ov::element::i64, {values.size()}, values);
}

/// int8 weights [n, 64] with a scale per row.
Node weights(int64_t n, std::mt19937& random) {
    std::uniform_int_distribution<int> any(-127, 127);
    std::vector<int> values(size_t(n * hidden));
    for (int& v : values) v = any(random);
    const auto constant = Constant::create(ov::element::i8, {size_t(n), size_t(hidden)}, values);
    const std::vector<float> scales(size_t(n), 0.002f);
    return std::make_shared<Multiply>(std::make_shared<Convert>(constant, ov::element::f32),
                                      Constant::create(ov::element::f32, {size_t(n), 1}, scales));
}

Node slice(const Node& x, int64_t begin, int64_t end) {
    return std::make_shared<Slice>(x, integers({begin}), integers({end}), integers({1}),
                                   integers({3}));
}

struct Options {
    int64_t size = 16;
    int64_t rotated = 16;
    bool normed = false;
    bool rotates = true;
    bool swapped_halves = false;  // (first half, -second half): no rotation
    bool read_before = false;     // the heads as they were are an output too
};

/// gamma * (x * (1 / sqrt(mean(x^2) + 1e-3))).
Node norm(const Node& x, int64_t size, std::mt19937& random) {
    std::normal_distribution<float> any(0, 1);
    std::vector<float> gamma(size_t(size), 0.0f);
    for (float& g : gamma) g = any(random);
    const auto number = [](float value) { return Constant::create(ov::element::f32, {}, {value}); };
    const Node square = std::make_shared<Power>(x, number(2));
    const Node mean = std::make_shared<ReduceMean>(square, integers({-1}), true);
    const Node root = std::make_shared<Sqrt>(std::make_shared<Add>(mean, number(1e-3f)));
    return std::make_shared<Multiply>(
        Constant::create(ov::element::f32, {size_t(size)}, gamma),
        std::make_shared<Multiply>(x, std::make_shared<Divide>(number(1), root)));
}

/// x [tokens, heads, 1, size] with its first values rotated.
Node rotate(const Node& x, const Node& cos, const Node& sin, const Options& options) {
    const int64_t size = options.rotated;
    const Node part = size == options.size ? x : slice(x, 0, size);
    const Node minus = std::make_shared<Multiply>(slice(part, size / 2, INT64_MAX),
                                                  Constant::create(ov::element::f32, {}, {-1.0f}));
    const Node first = slice(part, 0, size / 2);
    const ov::OutputVector halves =
        options.swapped_halves ? ov::OutputVector{first, minus} : ov::OutputVector{minus, first};
    const Node rotated = std::make_shared<Add>(
        std::make_shared<Multiply>(part, cos),
        std::make_shared<Multiply>(std::make_shared<Concat>(halves, -1), sin));
    if (size == options.size) return rotated;
    return std::make_shared<Concat>(ov::OutputVector{rotated, slice(x, size, INT64_MAX)}, -1);
}

/// x [tokens, 1, 64] and angles [tokens, 1, 1, rotated / 2]: three heads of q and one of k, normed
/// and rotated as Hugging Face's models do it, and v, as attention takes them.
std::shared_ptr<ov::Model> make_model(const Options& options) {
    std::mt19937 random(3);
    const int64_t size = options.size;
    const auto x = std::make_shared<Parameter>(ov::element::f32, ov::PartialShape{-1, 1, hidden});
    const auto angles = std::make_shared<Parameter>(
        ov::element::f32, ov::PartialShape{-1, 1, 1, options.rotated / 2});
    const auto both = std::make_shared<Concat>(ov::OutputVector{angles, angles}, -1);
    const Node cos = std::make_shared<Cos>(both), sin = std::make_shared<Sin>(both);
    ov::OutputVector outputs;
    for (const int64_t heads : {3, 1, 2}) {
        const Node projected =
            std::make_shared<MatMul>(x, weights(heads * size, random), false, true);
        const Node split =
            std::make_shared<Reshape>(projected, integers({0, 0, heads, size}), true);
        const bool plain = heads == 2;
        const Node normed = options.normed && !plain ? norm(split, size, random) : split;
        const Node swapped = std::make_shared<Transpose>(normed, integers({0, 2, 1, 3}));
        const Node rotated =
            options.rotates && !plain ? rotate(swapped, cos, sin, options) : swapped;
        const Node back = std::make_shared<Transpose>(rotated, integers({0, 2, 1, 3}));
        outputs.push_back(std::make_shared<Reshape>(back, integers({0, -1}), true));
        if (options.read_before) outputs.push_back(split);
    }
    return std::make_shared<ov::Model>(outputs, ov::ParameterVector{x, angles});
}

std::vector<std::vector<float>> run(const std::shared_ptr<ov::Model>& model, size_t tokens,
                                    size_t rotated) {
    std::mt19937 random(4);
    std::normal_distribution<float> any(0, 1);
    const auto draw = [&](const ov::Shape& shape) {
        ov::Tensor tensor(ov::element::f32, shape);
        for (size_t i = 0; i < tensor.get_size(); ++i) tensor.data<float>()[i] = 3 * any(random);
        return tensor;
    };
    ov::Core core;
    auto request =
        core.compile_model(model, "CPU", {ov::hint::inference_precision(ov::element::f32)})
            .create_infer_request();
    request.set_input_tensor(0, draw({tokens, 1, size_t(hidden)}));
    request.set_input_tensor(1, draw({tokens, 1, 1, rotated / 2}));
    request.infer();
    std::vector<std::vector<float>> results;
    for (size_t i = 0; i < model->outputs().size(); ++i) {
        const ov::Tensor output = request.get_output_tensor(i);
        results.emplace_back(output.data<float>(), output.data<float>() + output.get_size());
    }
    return results;
}

size_t count(const ov::Model& model, const std::string& type) {
    size_t found = 0;
    for (const auto& node : model.get_ops()) found += node->get_type_name() == type;
    return found;
}

void expect_equal(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].size(), b[i].size());
        for (size_t j = 0; j < a[i].size(); ++j)
            ASSERT_NEAR(a[i][j], b[i][j], 1e-4) << "output " << i << ", element " << j;
    }
}

TEST(FuseHeads, NormsAndRotatesTheHeadsOfQueriesAndKeysInTheirProjection) {
    std::vector<Options> all;
    for (const int64_t size : {2, 16, 44, 80})  // halves that fill vectors, and that do not
        for (const bool normed : {false, true}) all.push_back({size, size, normed});
    all.push_back({64, 16, false});
    all.push_back({64, 16, true});
    all.push_back({20, 6, true});
    all.push_back({16, 16, true, false});
    for (const Options& options : all) {
        const auto model = make_model(options);
        use_quantized_linear(model);
        for (const size_t tokens : {1, 5, 70}) {
            const auto fused = model->clone();
            EXPECT_EQ(fuse_heads(fused), 1u);
            EXPECT_EQ(count(*fused, "QuantizedLinear"), 1u);
            EXPECT_EQ(count(*fused, "Multiply") + count(*fused, "Add") + count(*fused, "Slice"),
                      0u);
            expect_equal(run(fused, tokens, size_t(options.rotated)),
                         run(model->clone(), tokens, size_t(options.rotated)));
        }
    }
}

TEST(FuseHeads, LeavesWhatIsNoRotationOrIsReadElsewhere) {
    Options swapped, read, normed;
    swapped.swapped_halves = true;
    read.read_before = true;
    normed.normed = normed.read_before = true;
    for (const Options& options : {swapped, read, normed}) {
        const auto model = make_model(options);
        use_quantized_linear(model);
        EXPECT_EQ(fuse_heads(model), 0u);
    }
}

/// x [tokens, 1, 64] times the sigmoid of a gate, projected.
TEST(FuseGates, GatesTheRowsInTheirProjection) {
    for (const bool read_elsewhere : {false, true}) {
        std::mt19937 random(5);
        const auto x =
            std::make_shared<Parameter>(ov::element::f32, ov::PartialShape{-1, 1, hidden});
        const auto gate =
            std::make_shared<Parameter>(ov::element::f32, ov::PartialShape{-1, 1, 1, hidden});
        const Node flat = std::make_shared<Reshape>(gate, integers({0, 1, hidden}), true);
        const Node product = std::make_shared<Multiply>(x, std::make_shared<Sigmoid>(flat));
        ov::OutputVector outputs{
            std::make_shared<MatMul>(product, weights(40, random), false, true)};
        if (read_elsewhere) outputs.push_back(product);
        const auto model = std::make_shared<ov::Model>(outputs, ov::ParameterVector{x, gate});
        use_quantized_linear(model);
        const auto fused = model->clone();
        EXPECT_EQ(fuse_gates(fused), read_elsewhere ? 0u : 1u);
        EXPECT_EQ(count(*fused, "Sigmoid"), read_elsewhere ? 1u : 0u);
        for (const size_t tokens : {1, 70}) {
            const auto got = run(fused->clone(), tokens, 2 * size_t(hidden));
            const auto expected = run(model->clone(), tokens, 2 * size_t(hidden));
            ASSERT_EQ(got[0].size(), expected[0].size());
            for (size_t i = 0; i < got[0].size(); ++i)
                ASSERT_NEAR(got[0][i], expected[0][i], 0.03) << i;  // some steps of activations
        }
    }
}

}  // namespace
}  // namespace pagewheel
