#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "openvino/op/constant.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/result.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::MatMul;
using ov::op::v0::Parameter;

std::shared_ptr<ov::Model> product(const ov::PartialShape& a, const ov::PartialShape& b,
                                   bool transpose_b = false) {
    const ov::ParameterVector inputs{std::make_shared<Parameter>(ov::element::f32, a),
                                     std::make_shared<Parameter>(ov::element::f32, b)};
    return std::make_shared<ov::Model>(
        ov::OutputVector{std::make_shared<MatMul>(inputs[0], inputs[1], false, transpose_b)},
        inputs);
}

std::vector<float> run(const std::shared_ptr<ov::Model>& model, const ov::TensorVector& inputs) {
    ov::Core core;
    auto request = core.compile_model(model, "CPU", ov::hint::inference_precision(ov::element::f32))
                       .create_infer_request();
    for (size_t i = 0; i < inputs.size(); ++i) request.set_input_tensor(i, inputs[i]);
    request.infer();
    const ov::Tensor output = request.get_output_tensor();
    return {output.data<float>(), output.data<float>() + output.get_size()};
}

ov::Tensor random_tensor(std::mt19937& random, const ov::Shape& shape) {
    std::normal_distribution<float> normal;
    ov::Tensor tensor(ov::element::f32, shape);
    for (size_t i = 0; i < tensor.get_size(); ++i) tensor.data<float>()[i] = normal(random);
    return tensor;
}

TEST(OuterProducts, AreTheSameAsProductsOfElements) {
    std::mt19937 random(1);
    const auto model = product({1, -1, 1}, {-1, 1, 5});
    const ov::TensorVector inputs{random_tensor(random, {1, 4, 1}),
                                  random_tensor(random, {3, 1, 5})};
    const auto expected = run(model->clone(), inputs);
    EXPECT_EQ(multiply_outer_products(model), 1u);
    EXPECT_EQ(run(model, inputs), expected);
}

TEST(OuterProducts, WhatAddsUpMoreOrIsTransposedStays) {
    EXPECT_EQ(multiply_outer_products(product({-1, 4, 2}, {-1, 2, 5})), 0u);
    EXPECT_EQ(multiply_outer_products(product({-1, 4, -1}, {-1, -1, 5})), 0u);
    EXPECT_EQ(multiply_outer_products(product({-1, 4, 1}, {-1, 5, 1}, true)), 0u);
}

}  // namespace
}  // namespace pagewheel
