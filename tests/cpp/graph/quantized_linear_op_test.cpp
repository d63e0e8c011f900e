// The passes that put QuantizedLinear and GatedMlp into a graph, and what the graph computes then.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "graph/passes.hpp"
#include "kernels/activation_choice.hpp"
#include "model/openvino_core.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/divide.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/power.hpp"
#include "openvino/op/reduce_mean.hpp"
#include "openvino/op/result.hpp"
#include "openvino/op/sqrt.hpp"
#include "openvino/op/swish.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "support/compressed_graph.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::MatMul;
using ov::op::v1::Multiply;

Node linear(const ov::Output<ov::Node>& x, const Node& weights) {
    return std::make_shared<MatMul>(x, weights, false, true);
}

std::shared_ptr<ov::op::v0::Parameter> input(size_t k) {
    return std::make_shared<ov::op::v0::Parameter>(ov::element::f32,
                                                   ov::PartialShape{-1, 1, int64_t(k)});
}

std::shared_ptr<ov::Model> model_of(const ov::OutputVector& outputs,
                                    const std::shared_ptr<ov::op::v0::Parameter>& x) {
    ov::ResultVector results;
    for (const auto& output : outputs)
        results.push_back(std::make_shared<ov::op::v0::Result>(output));
    return std::make_shared<ov::Model>(results, ov::ParameterVector{x});
}

void expect_close(const std::vector<std::vector<float>>& got,
                  const std::vector<std::vector<float>>& expected, double bound) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(relative_error(got[i], expected[i]), bound) << "output " << i;
}

constexpr double quantisation = 0.015;  // of activations to int8, on random numbers

TEST(UseQuantizedLinear, TakesEveryDressingOfCompressedWeights) {
    using namespace ov::element;
    Draw draw(1);
    const size_t n = 50, k = 128;
    size_t case_number = 0;
    for (const ov::element::Type& type : {u4, i4, u8, i8})
        for (const size_t group : {32, 64, 128, 0})
            for (const Zero zero : {Zero::none, Zero::integer, Zero::fractional}) {
                const auto x = input(k);
                const auto model =
                    model_of({linear(x, compressed(draw, type, n, k, group, zero))}, x);
                const ov::Tensor values = draw.input({1 + case_number++ % 20, 1, k});
                const auto expected = run(model->clone(), values);
                const auto report = use_quantized_linear(model);
                EXPECT_EQ(report.num_matrices, 1u) << type << " group " << group;
                EXPECT_EQ(count(*model, "MatMul"), 0u);
                EXPECT_LT(relative_error(run(model, values)[0], expected[0]), quantisation)
                    << type << " group " << group << " zero " << int(zero);
            }
}

TEST(UseQuantizedLinear, TakesWeightsOf16BitsWhereProductsOfBf16AreFast) {
    Draw draw(11);
    const bool takes = kernels::has_fast_bf16(detected_isa());
    for (const ov::element::Type& type : {ov::element::f16, ov::element::bf16}) {
        const auto x = input(70);
        const Node half = converted(draw.floats(type, {50, 70}, -1, 1), ov::element::f32);
        // Integers beside it need activations of their own.
        const Node integers = compressed(draw, ov::element::u8, 20, 70, 0, Zero::none);
        const auto model = model_of({linear(x, half), linear(x, integers)}, x);
        const ov::Tensor values = draw.input({5, 1, 70});
        const auto expected = run(model->clone(), values);
        const auto report = use_quantized_linear(model);
        EXPECT_EQ(report.num_nodes, takes ? 2u : 1u) << type;
        EXPECT_EQ(report.left.empty(), takes) << type;
        expect_close(run(model, values), expected, quantisation);
    }
}

TEST(UseQuantizedLinear, MatricesThatShareAnInputBecomeOneNode) {
    Draw draw(2);
    const auto x = input(64);
    const auto weights = [&](size_t n) {
        return compressed(draw, ov::element::u4, n, 64, 32, Zero::fractional);
    };
    // The first two are of equal shape: only what they hold tells them apart.
    const auto q = linear(x, weights(48)), k = linear(x, weights(48)), v = linear(x, weights(20));
    const auto o = linear(v, compressed(draw, ov::element::i4, 48, 20, 0, Zero::none));
    const auto model = model_of({q, k, o}, x);
    const ov::Tensor values = draw.input({5, 1, 64});
    const auto expected = run(model->clone(), values);
    const auto report = use_quantized_linear(model);
    EXPECT_EQ(report.num_matrices, 4u);
    EXPECT_EQ(report.num_nodes, 2u);
    EXPECT_EQ(count(*model, "MatMul"), 0u);
    EXPECT_TRUE(report.left.empty());
    expect_close(run(model, values), expected, 2 * quantisation);
}

TEST(UseQuantizedLinear, NodesAlikeInAllButTheirWeightsStayApart) {
    Draw draw(3);
    const auto x = input(64);
    const auto first = linear(x, compressed(draw, ov::element::u4, 64, 64, 32, Zero::integer));
    const auto second = linear(first, compressed(draw, ov::element::u4, 64, 64, 32, Zero::integer));
    const auto third = linear(first, compressed(draw, ov::element::u4, 64, 64, 32, Zero::integer));
    const auto model = model_of({second, third}, x);
    const ov::Tensor values = draw.input({3, 1, 64});
    const auto expected = run(model->clone(), values);
    use_quantized_linear(model);
    expect_close(run(model, values), expected, 2 * quantisation);
}

TEST(UseQuantizedLinear, LetsGoOfTheConstants) {
    Draw draw(4);
    const auto x = input(64);
    std::weak_ptr<ov::Node> weights;
    std::shared_ptr<ov::Model> model;
    {
        const auto node = compressed(draw, ov::element::u4, 16, 64, 32, Zero::integer);
        weights = node;
        model = model_of({linear(x, node)}, x);
    }
    use_quantized_linear(model);
    EXPECT_TRUE(weights.expired());
}

TEST(UseQuantizedLinear, SaysWhyAMatMulStays) {
    Draw draw(5);
    const auto x = input(64);
    const auto plain = linear(x, draw.floats(ov::element::f32, {8, 64}, -1, 1));
    const auto small = linear(x, compressed(draw, ov::element::u4, 8, 64, 16, Zero::none));
    const Node across = std::make_shared<MatMul>(
        x, compressed(draw, ov::element::u4, 64, 64, 32, Zero::none), false, false);
    plain->set_friendly_name("plain");
    small->set_friendly_name("small");
    across->set_friendly_name("across");
    const auto other = linear(x, draw.floats(ov::element::f32, {8, 64}, -1, 1));
    const auto model = model_of({plain, other, small, across}, x);
    const auto report = use_quantized_linear(model);
    EXPECT_EQ(report.num_matrices, 0u);
    ASSERT_EQ(report.left.size(), 3u);
    std::string all;
    for (const std::string& sentence : report.left) all += sentence + "\n";
    for (const char* part : {" and 1 more stay with OpenVINO: its weights are f32",
                             "small stays with OpenVINO: its weights are in groups of 16",
                             "across stays with OpenVINO: its weights are not [outputs, inputs]"})
        EXPECT_NE(all.find(part), std::string::npos) << all;
}

TEST(UseQuantizedLinear, AnInputOfAnotherWidthIsRefused) {
    Draw draw(6);
    const auto x =
        std::make_shared<ov::op::v0::Parameter>(ov::element::f32, ov::PartialShape{-1, 1, -1});
    const auto model =
        model_of({linear(x, compressed(draw, ov::element::u4, 16, 64, 32, Zero::none))}, x);
    use_quantized_linear(model);
    EXPECT_THROW(run(model, draw.input({1, 1, 32})), std::exception);
    EXPECT_EQ(run(model, draw.input({1, 1, 64}))[0].size(), 16u);
}

Node scalar_constant(float value) {
    return Constant::create(ov::element::f32, {}, {value});
}

Node rms_norm(Draw& draw, const Node& x, size_t k) {
    const auto square = std::make_shared<ov::op::v1::Power>(x, scalar_constant(2));
    const auto mean = std::make_shared<ov::op::v1::ReduceMean>(
        square, Constant::create(ov::element::i64, {1}, {-1}), true);
    const auto root = std::make_shared<ov::op::v0::Sqrt>(
        std::make_shared<ov::op::v1::Add>(mean, scalar_constant(1e-3f)));
    const auto inverse = std::make_shared<ov::op::v1::Divide>(scalar_constant(1), root);
    return std::make_shared<Multiply>(draw.floats(ov::element::f32, {k}, 0.5f, 1.5f),
                                      std::make_shared<Multiply>(x, inverse));
}

/// Two layers of a gated model without their attention.
std::shared_ptr<ov::Model> make_layers(Draw& draw, size_t k, size_t inner) {
    const auto x = input(k);
    Node hidden = x;
    const auto weights = [&](size_t rows, size_t columns) {
        return compressed(draw, ov::element::u4, rows, columns, 32, Zero::fractional);
    };
    for (int layer = 0; layer < 2; ++layer) {
        const Node normed = rms_norm(draw, hidden, k);
        const Node value = linear(normed, weights(k, k));
        hidden = std::make_shared<ov::op::v1::Add>(hidden, linear(value, weights(k, k)));
        const Node second = rms_norm(draw, hidden, k);
        const Node gate = std::make_shared<ov::op::v4::Swish>(linear(second, weights(inner, k)));
        const Node product = std::make_shared<Multiply>(gate, linear(second, weights(inner, k)));
        hidden = std::make_shared<ov::op::v1::Add>(hidden, linear(product, weights(k, inner)));
    }
    return model_of({hidden}, x);
}

TEST(FuseLinear, LayersAreTheSameInFewerNodes) {
    Draw draw(7);
    const size_t k = 96, inner = 160;
    const auto model = make_layers(draw, k, inner);
    const ov::Tensor values = draw.input({19, 1, k});
    const auto exact = run(model->clone(), values);
    use_quantized_linear(model);
    const auto parts = run(model->clone(), values);
    EXPECT_EQ(fuse_norms(model), 4u);
    EXPECT_EQ(fuse_gated_mlps(model), 2u);
    EXPECT_EQ(fuse_residuals(model), 4u);
    EXPECT_EQ(count(*model, "QuantizedLinear"), 4u);
    EXPECT_EQ(count(*model, "GatedMlp"), 2u);
    EXPECT_EQ(count(*model, "Add") + count(*model, "Multiply") + count(*model, "Swish"), 0u);
    const auto fused = run(model, values);
    EXPECT_LT(relative_error(fused[0], exact[0]), 3 * quantisation);
    // One more or less of 127 steps here and there, where the last bits differ.
    EXPECT_LT(relative_error(fused[0], parts[0]), 0.2 * quantisation);
}

TEST(FuseLinear, LeavesWhatIsReadElsewhere) {
    Draw draw(8);
    const auto x = input(64);
    const auto weights = [&] {
        return compressed(draw, ov::element::u4, 64, 64, 32, Zero::integer);
    };
    const Node normed = rms_norm(draw, x, 64);
    const Node up = linear(normed, weights());
    const Node gate = std::make_shared<ov::op::v4::Swish>(linear(normed, weights()));
    const Node down = linear(std::make_shared<Multiply>(gate, up), weights());
    const Node sum = std::make_shared<ov::op::v1::Add>(x, down);
    const auto model = model_of({normed, up, down, sum}, x);
    const ov::Tensor values = draw.input({2, 1, 64});
    const auto expected = run(model->clone(), values);
    use_quantized_linear(model);
    EXPECT_EQ(fuse_norms(model) + fuse_gated_mlps(model) + fuse_residuals(model), 0u);
    expect_close(run(model, values), expected, 3 * quantisation);
}

TEST(FuseLinear, ABiasIsNoResidual) {
    Draw draw(9);
    const auto x = input(64);
    const Node product = linear(x, compressed(draw, ov::element::u4, 64, 64, 32, Zero::none));
    const Node bias = draw.floats(ov::element::f32, {1, 1, 64}, -1, 1);
    const auto model = model_of({std::make_shared<ov::op::v1::Add>(product, bias)}, x);
    use_quantized_linear(model);
    EXPECT_EQ(fuse_residuals(model), 0u);
}

}  // namespace
}  // namespace pagewheel
