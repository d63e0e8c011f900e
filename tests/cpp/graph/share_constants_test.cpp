// The pass that makes one node of equal small constants.
#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include "openvino/op/add.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/parameter.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;

TEST(ShareConstants, OneNodeServesEqualValuesOfEqualTypeAndShape) {
    const auto x =
        std::make_shared<ov::op::v0::Parameter>(ov::element::f32, ov::PartialShape{-1, 32});
    ov::Output<ov::Node> sum = x;
    std::vector<std::shared_ptr<ov::Node>> adds;
    const auto add = [&](const ov::Shape& shape, float value) {
        const auto constant = Constant::create(ov::element::f32, shape, {value});
        adds.push_back(std::make_shared<ov::op::v1::Add>(sum, constant));
        sum = adds.back();
    };
    add({1}, 0.0f);
    add({1}, 0.0f);   // as the first
    add({1}, -0.0f);  // equal numbers, other bits
    add({1, 1}, 0.0f);
    add({32}, 0.0f);
    add({32}, 0.0f);  // as the one before, but too large to be looked at
    const auto model = std::make_shared<ov::Model>(ov::OutputVector{sum}, ov::ParameterVector{x});
    EXPECT_EQ(share_constants(model), 1u);
    const auto constant = [&](size_t i) { return adds[i]->get_input_node_ptr(1); };
    EXPECT_EQ(constant(0), constant(1));
    for (size_t i : {2, 3, 4, 5}) EXPECT_NE(constant(i), constant(i - 1)) << i;
}

}  // namespace
}  // namespace pagewheel
