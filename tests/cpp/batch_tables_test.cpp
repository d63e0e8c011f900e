// The packed tables of a batch as an input of the model.
#include "graph/batch_tables.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "openvino/op/parameter.hpp"
#include "openvino/op/relu.hpp"
#include "openvino/op/result.hpp"
#include "ops/attention_tables.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Parameter;

std::shared_ptr<Parameter> table(const std::string& name) {
    auto parameter = std::make_shared<Parameter>(ov::element::i32, ov::PartialShape{-1});
    parameter->output(0).set_names({name});
    return parameter;
}

std::set<std::string> input_names(const ov::Model& model) {
    std::set<std::string> names;
    for (const auto& input : model.inputs()) names.insert(input.get_any_name());
    return names;
}

TEST(BatchTables, TakeThePlaceOfTheNodeAndItsInputs) {
    const ov::ParameterVector inputs{table("a"), table("b"), table("c"), table("d"), table("e")};
    const auto packed = std::make_shared<AttentionTables>(
        ov::OutputVector{inputs[0], inputs[1], inputs[2], inputs[3]});
    const auto model =
        std::make_shared<ov::Model>(ov::OutputVector{std::make_shared<ov::op::v0::Relu>(packed),
                                                     std::make_shared<ov::op::v0::Relu>(inputs[4])},
                                    inputs);
    take_packed_tables(model);
    EXPECT_EQ(input_names(*model), (std::set<std::string>{"e", "batch_tables"}));
    for (const auto& node : model->get_ops()) EXPECT_FALSE(ov::is_type<AttentionTables>(node));
}

TEST(BatchTables, StayWhereAreTwoOrTheyAreComputedOrReadElsewhere) {
    const ov::ParameterVector inputs{table("a"), table("b"), table("c"), table("d")};
    const ov::OutputVector tables(inputs.begin(), inputs.end());
    ov::OutputVector computed = tables;
    computed[0] = std::make_shared<ov::op::v0::Relu>(inputs[0]);
    for (const ov::OutputVector& outputs :
         {ov::OutputVector{std::make_shared<AttentionTables>(computed)},
          ov::OutputVector{std::make_shared<AttentionTables>(tables),
                           std::make_shared<AttentionTables>(tables)},
          ov::OutputVector{std::make_shared<AttentionTables>(tables),
                           std::make_shared<ov::op::v0::Relu>(inputs[2])}}) {
        const auto model = std::make_shared<ov::Model>(outputs, inputs);
        take_packed_tables(model);
        EXPECT_EQ(model->inputs().size(), 4u);
    }
}

TEST(BatchTables, AreLaidOutAsTheyAreRead) {
    const AttentionTables::Sizes sizes{2, 3, 0, 1};
    ov::Tensor packed(ov::element::i32, {AttentionTables::packed_size(sizes)});
    ASSERT_EQ(packed.get_size(), 10u);
    const auto tables = AttentionTables::lay_out(packed.data<int32_t>(), sizes);
    int32_t next = 0;
    for (size_t i = 0; i < sizes.size(); ++i)
        for (size_t j = 0; j < sizes[i]; ++j) tables[i][j] = next++;
    const UnpackedTables read(packed);
    next = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        ASSERT_EQ(read.size[i], sizes[i]);
        for (size_t j = 0; j < sizes[i]; ++j) EXPECT_EQ(read.table[i][j], next++);
    }
}

}  // namespace
}  // namespace pagewheel
