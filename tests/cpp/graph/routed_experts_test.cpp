// The pass that puts RoutedExperts into a graph, and what the graph computes then.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/activation_choice.hpp"
#include "model/openvino_core.hpp"
#include "openvino/opsets/opset13.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "ops/routed_experts.hpp"
#include "support/compressed_graph.hpp"

namespace pagewheel {
namespace {

using namespace ov::opset13;
using Value = ov::Output<ov::Node>;

constexpr int64_t hidden = 64, inner = 96, experts = 6, active = 2;

Value integers(const std::vector<int64_t>& values) {
    return Constant::create(ov::element::i64, {values.size()}, values);
}

Value number(float value) {
    return Constant::create(ov::element::f32, {}, {value});
}

Value reshape(const Value& x, const Value& shape) {
    return std::make_shared<Reshape>(x, shape, false);
}

/// Weights of all experts, [experts, n, k].
Value stack(Draw& draw, const ov::element::Type& type, int64_t n, int64_t k) {
    const auto count = size_t(experts), rows = size_t(n), groups = size_t(k) / 32;
    if (type.is_real() && type.bitwidth() == 16)
        return converted(draw.floats(type, {count, rows, size_t(k)}, -0.1f, 0.1f),
                         ov::element::f32);
    const Node values = converted(draw.integers(type, {count, rows, groups, 32}), ov::element::f32);
    const Node scales = draw.floats(ov::element::f32, {count, rows, groups, 1}, 0.01f, 0.02f);
    return reshape(std::make_shared<Multiply>(values, scales), integers({experts, n, k}));
}

Value linear(const Value& x, const Value& weights) {
    return std::make_shared<MatMul>(x, weights, false, true);
}

Value add(const Value& a, const Value& b) {
    return std::make_shared<Add>(a, b);
}

Value multiply(const Value& a, const Value& b) {
    return std::make_shared<Multiply>(a, b);
}

enum class Mlp { silu, gelu, gpt_oss };
enum class Router { softmax, softmax_of_best, sigmoid_corrected, exported, gemma4, unknown };

/// A layer as optimum-intel and the converter write it.
struct LayerGraph {
    Draw draw{3};
    std::shared_ptr<Parameter> x =
        std::make_shared<Parameter>(ov::element::f32, ov::PartialShape{-1, -1, hidden});

    Value bias(int64_t n) {
        return draw.floats(ov::element::f32, {size_t(experts), 1, size_t(n)}, -0.5f, 0.5f);
    }

    Value activated(const Value& tiled, Mlp mlp, const ov::element::Type& type) {
        if (mlp != Mlp::gpt_oss) {
            const Value gate = linear(tiled, stack(draw, type, inner, hidden));
            const Value up = linear(tiled, stack(draw, type, inner, hidden));
            const Value silu = std::make_shared<Swish>(gate);
            const Value gelu = std::make_shared<Gelu>(gate, ov::op::GeluApproximationMode::TANH);
            return multiply(mlp == Mlp::gelu ? gelu : silu, up);
        }
        const Value both =
            add(linear(tiled, stack(draw, type, 2 * inner, hidden)), bias(2 * inner));
        const auto every_other = [&](int64_t first) {
            return std::make_shared<Slice>(both, integers({first}), integers({2 * inner}),
                                           integers({2}), integers({2}));
        };
        const Value up = add(std::make_shared<Clamp>(every_other(1), -1.0, 1.0), number(1));
        const Value gate = std::make_shared<Minimum>(every_other(0), number(1));
        return multiply(up, std::make_shared<Swish>(gate, number(1.702f)));
    }

    /// Weights and numbers of the chosen.
    std::pair<Value, Value> chosen(const Value& tokens, Router router) {
        const auto row = [&](int64_t size = experts) {
            return draw.floats(ov::element::f32, {size_t(size)}, -0.1f, 0.1f);
        };
        const Value matrix =
            draw.floats(ov::element::f32, {size_t(experts), size_t(hidden)}, -0.2f, 0.2f);
        const Value logits = linear(tokens, matrix);
        const auto best = [&](const Value& scores) {
            return std::make_shared<TopK>(scores, Constant::create(ov::element::i64, {}, {active}),
                                          -1, "max", "value", ov::element::i64);
        };
        switch (router) {
            case Router::softmax_of_best: {
                const auto top = best(add(logits, row()));
                return {std::make_shared<Softmax>(top->output(0), 1), top->output(1)};
            }
            case Router::sigmoid_corrected: {
                const Value scores = std::make_shared<Sigmoid>(logits);
                const auto top = best(add(scores, row()));
                const Value values = std::make_shared<GatherElements>(scores, top->output(1), 1);
                const Value sum = std::make_shared<ReduceSum>(values, integers({1}), true);
                return {multiply(std::make_shared<Divide>(values, sum), number(2.5f)),
                        top->output(1)};
            }
            case Router::exported: {  // the weights are cut to the shape that they have
                const auto top = best(std::make_shared<Softmax>(logits, 1));
                const Value sum = std::make_shared<ReduceSum>(top->output(0), integers({1}), true);
                const Value cut = std::make_shared<Slice>(
                    std::make_shared<Divide>(top->output(0), sum), integers({0, 0}),
                    std::make_shared<ShapeOf>(top->output(1)), integers({1, 1}), integers({0, 1}));
                return {cut, top->output(1)};
            }
            case Router::gemma4: {  // it reads something else than the experts do
                const Value own = multiply(tokens, row(hidden));
                const auto top = best(std::make_shared<Softmax>(linear(own, matrix), 1));
                const Value sum = std::make_shared<ReduceSum>(top->output(0), integers({1}), true);
                const Value scales = std::make_shared<Gather>(
                    row(), top->output(1), Constant::create(ov::element::i64, {}, {0}));
                return {multiply(std::make_shared<Divide>(top->output(0), sum), scales),
                        top->output(1)};
            }
            case Router::softmax:
            case Router::unknown: {
                const Value scores = std::make_shared<Softmax>(logits, 1);
                const auto top = best(scores);
                const Value values = router == Router::softmax
                                         ? top->output(0)
                                         : Value(std::make_shared<Sqrt>(top->output(0)));
                return {values, top->output(1)};
            }
        }
        __builtin_unreachable();
    }

    Value layer(const Value& in, Mlp mlp, Router router, const ov::element::Type& type) {
        const Value tokens = reshape(in, integers({-1, hidden}));
        const Value tiled = reshape(std::make_shared<Tile>(tokens, integers({experts, 1})),
                                    integers({experts, -1, hidden}));
        Value down = linear(activated(tiled, mlp, type), stack(draw, type, hidden, inner));
        if (mlp == Mlp::gpt_oss) down = add(down, bias(hidden));
        const Value batch = std::make_shared<Gather>(std::make_shared<ShapeOf>(in), integers({0}),
                                                     Constant::create(ov::element::i64, {}, {0}));
        const auto shape = [&](const std::vector<int64_t>& rest) {
            return std::make_shared<Concat>(
                ov::OutputVector{integers({experts}), batch, integers(rest)}, 0);
        };
        const auto [values, numbers] = chosen(tokens, router);
        const Value zeros = std::make_shared<Broadcast>(
            number(0), std::make_shared<ShapeOf>(std::make_shared<MatMul>(
                           tokens, Constant::create(ov::element::f32, {hidden, experts}, {0.0f}))));
        const Value scattered = std::make_shared<ScatterElementsUpdate>(
            zeros, numbers, values, Constant::create(ov::element::i64, {}, {1}));
        const Value weights = std::make_shared<Unsqueeze>(
            reshape(std::make_shared<Transpose>(scattered, integers({1, 0})), shape({-1})),
            integers({-1}));
        const Value sum = std::make_shared<ReduceSum>(
            multiply(reshape(down, shape({-1, hidden})), weights), integers({0}), false);
        return reshape(sum, std::make_shared<ShapeOf>(in));
    }

    std::shared_ptr<ov::Model> model(const Value& output) {
        return std::make_shared<ov::Model>(ov::ResultVector{std::make_shared<Result>(output)},
                                           ov::ParameterVector{x});
    }
};

std::shared_ptr<RoutedExperts> only_experts(const ov::Model& model) {
    std::shared_ptr<RoutedExperts> found;
    for (const auto& node : model.get_ordered_ops())
        if (const auto node_experts = ov::as_type_ptr<RoutedExperts>(node)) {
            EXPECT_FALSE(found);
            found = node_experts;
        }
    return found;
}

void expect_layer(Mlp mlp, Router router, const ov::element::Type& type) {
    const bool in_bf16 = kernels::has_fast_bf16(detected_isa());  // 60 rows, else in int8
    LayerGraph graph;
    const auto model = graph.model(graph.layer(graph.x, mlp, router, type));
    Draw draw(5);
    for (const size_t rows : {1, 7, 60}) {
        const ov::Tensor x = draw.input({1, rows, size_t(hidden)});
        const std::vector<float> expected = run(model->clone(), x).at(0);
        const auto replaced = model->clone();
        ASSERT_EQ(use_routed_experts(replaced, kernels::ActivationPrecision::automatic), 1u);
        EXPECT_EQ(use_quantized_linear(replaced).left.empty(), router != Router::unknown);
        const auto node = only_experts(*replaced);
        ASSERT_TRUE(node);
        EXPECT_EQ(node->attributes().router == nullptr, router == Router::unknown);
        EXPECT_LT(relative_error(run(replaced, x).at(0), expected), in_bf16 ? 0.01 : 0.03)
            << "mlp " << int(mlp) << ", router " << int(router) << ", " << type;
    }
}

TEST(UseRoutedExperts, TakesEachActivation) {
    for (const Mlp mlp : {Mlp::silu, Mlp::gelu, Mlp::gpt_oss})
        expect_layer(mlp, Router::softmax, ov::element::u4);
}

TEST(UseRoutedExperts, TakesEachFormatOfWeights) {
    for (const ov::element::Type& type :
         {ov::element::i4, ov::element::u8, ov::element::i8, ov::element::f4e2m1})
        for (const Mlp mlp : {Mlp::silu, Mlp::gpt_oss}) expect_layer(mlp, Router::softmax, type);
    if (!kernels::has_fast_bf16(detected_isa())) return;
    for (const ov::element::Type& type : {ov::element::f16, ov::element::bf16})
        for (const Mlp mlp : {Mlp::silu, Mlp::gpt_oss}) expect_layer(mlp, Router::softmax, type);
}

TEST(UseRoutedExperts, TakesEachRouterAndReadsTheChoiceOfAnother) {
    for (const Router router : {Router::softmax_of_best, Router::sigmoid_corrected,
                                Router::exported, Router::gemma4, Router::unknown})
        expect_layer(Mlp::silu, router, ov::element::i4);
}

TEST(UseRoutedExperts, LeavesWeightsThatAreNotCompressed) {
    LayerGraph graph;
    const Value dense = graph.draw.floats(ov::element::f32,
                                          {size_t(experts), size_t(hidden), size_t(hidden)}, -1, 1);
    const auto model = graph.model(linear(graph.x, dense));
    EXPECT_EQ(use_routed_experts(model, kernels::ActivationPrecision::automatic), 0u);
}

}  // namespace
}  // namespace pagewheel
