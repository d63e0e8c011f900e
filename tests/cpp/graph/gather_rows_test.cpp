// Rows gathered by an operation of pagewheel's, alone and where a pass puts it.
#include "ops/gather_rows.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "graph/passes.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/relu.hpp"
#include "openvino/op/result.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Parameter;

std::shared_ptr<Parameter> parameter(const std::string& name, const ov::element::Type& type,
                                     const ov::PartialShape& shape) {
    auto node = std::make_shared<Parameter>(type, shape);
    node->set_friendly_name(name);
    return node;
}

template <class Index>
std::vector<float> gathered(const std::vector<Index>& indices) {
    const auto type = ov::element::from<Index>();
    const auto x = parameter("x", ov::element::f32, {-1, 1, 2});
    const auto rows = parameter("sampled_tokens_indices", type, {-1});
    const GatherRows op(ov::OutputVector{x, rows});
    EXPECT_EQ(op.get_output_partial_shape(0), (ov::PartialShape{-1, 1, 2}));
    ov::TensorVector inputs{ov::Tensor(ov::element::f32, {3, 1, 2}),
                            ov::Tensor(type, {indices.size()})};
    std::iota(inputs[0].data<float>(), inputs[0].data<float>() + 6, 0.0f);
    std::copy(indices.begin(), indices.end(), inputs[1].data<Index>());
    ov::TensorVector outputs{ov::Tensor(ov::element::f32, {0})};
    op.evaluate(outputs, inputs);
    EXPECT_EQ(outputs[0].get_shape(), (ov::Shape{indices.size(), 1, 2}));
    return {outputs[0].data<float>(), outputs[0].data<float>() + outputs[0].get_size()};
}

TEST(GatherRows, TakesRowsInAnyOrderAndAnyNumber) {
    EXPECT_EQ(gathered<int64_t>({2, 0, 2}), (std::vector<float>{4, 5, 0, 1, 4, 5}));
    EXPECT_EQ(gathered<int32_t>({1}), (std::vector<float>{2, 3}));
    EXPECT_EQ(gathered<int32_t>({}), std::vector<float>());
}

TEST(GatherRows, RefusesRowsThatAreNotThere) {
    EXPECT_THROW(gathered<int64_t>({3}), InvalidArgument);
    EXPECT_THROW(gathered<int32_t>({-1}), InvalidArgument);
}

TEST(GatherRows, RefusesWhatAreNoRows) {
    const auto refuses = [](const ov::PartialShape& rows, const ov::element::Type& type,
                            const ov::PartialShape& indices) {
        EXPECT_THROW(GatherRows(ov::OutputVector{parameter("x", ov::element::f32, rows),
                                                 parameter("i", type, indices)}),
                     ov::Exception);
    };
    refuses({-1, 2, 4}, ov::element::i64, {-1});
    refuses({-1, -1}, ov::element::i64, {-1});
    refuses({4}, ov::element::i64, {-1});
    refuses({-1, 4}, ov::element::f32, {-1});
    refuses({-1, 4}, ov::element::i64, {-1, 1});
}

/// How many Gathers the pass replaces, of `data` along `axis`, read by one of pagewheel's own or by
/// OpenVINO's Relu.
size_t replaced(const ov::PartialShape& data, int64_t axis, bool native_reader,
                const char* rows_name = "sampled_tokens_indices") {
    const auto x = parameter("x", ov::element::f32, data);
    const auto rows = parameter(rows_name, ov::element::i64, {-1});
    const auto gather = std::make_shared<ov::op::v8::Gather>(
        x, rows, ov::op::v0::Constant::create(ov::element::i64, {}, {axis}));
    std::shared_ptr<ov::Node> reader = std::make_shared<ov::op::v0::Relu>(gather);
    if (native_reader) reader = std::make_shared<GatherRows>(ov::OutputVector{gather, rows});
    const auto model =
        std::make_shared<ov::Model>(ov::ResultVector{std::make_shared<ov::op::v0::Result>(reader)},
                                    ov::ParameterVector{x, rows});
    return use_gather_rows(model);
}

TEST(GatherRows, TakesThePlaceOfAGatherThatAnOperationOfPagewheelsReads) {
    EXPECT_EQ(replaced({-1, 1, 8}, 0, true), 1u);
    EXPECT_EQ(replaced({-1, 1, 8}, 0, true, "logits_indices"), 1u);
    EXPECT_EQ(replaced({-1, 1, 8}, 0, true, "something_else"), 0u);
    EXPECT_EQ(replaced({-1, 1, 8}, 0, false), 0u);
}

}  // namespace
}  // namespace pagewheel
