// Embeddings that read the vocabulary head's packed matrix, against OpenVINO's look-up.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "graph/passes.hpp"
#include "model/openvino_core.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/result.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "support/compressed_graph.hpp"

namespace pagewheel {
namespace {

/// ids -> look-up in `table` -> product with it, as models with tied embeddings are; both are
/// outputs.
std::shared_ptr<ov::Model> tied_model(const Node& table, const ov::element::Type& ids_type) {
    const auto ids = std::make_shared<ov::op::v0::Parameter>(ids_type, ov::PartialShape{-1, -1});
    const auto axis = ov::op::v0::Constant::create(ov::element::i32, {}, {0});
    const auto rows = std::make_shared<ov::op::v8::Gather>(table, ids, axis);
    const auto head = std::make_shared<ov::op::v0::MatMul>(rows, table, false, true);
    return std::make_shared<ov::Model>(ov::OutputVector{rows, head}, ov::ParameterVector{ids});
}

template <class Id>
std::vector<float> look_up(const std::shared_ptr<ov::Model>& model, const std::vector<Id>& ids,
                           const ov::Shape& shape, const ov::Shape& expected_shape) {
    ov::Core& core = openvino_core();
    auto compiled = core.compile_model(model, "CPU", ov::hint::inference_precision("f32"));
    auto request = compiled.create_infer_request();
    ov::Tensor tensor(ov::element::from<Id>(), shape);
    std::memcpy(tensor.data(), ids.data(), ids.size() * sizeof(Id));
    request.set_input_tensor(tensor);
    request.start_async();
    request.wait();
    const ov::Tensor rows = request.get_output_tensor(0);
    EXPECT_EQ(rows.get_shape(), expected_shape);
    return {rows.data<float>(), rows.data<float>() + rows.get_size()};
}

TEST(QuantizedEmbedding, GivesTheSameBitsAsTheLookUpItReplaces) {
    Draw draw(1);
    using namespace ov::element;
    const size_t n = 75;
    for (const ov::element::Type& type : {u4, i4, u8, i8})
        for (const size_t group : {32, 64, 0})
            for (const Zero zero : {Zero::none, Zero::integer}) {
                const size_t k = group ? 128 : 90;
                const auto model = tied_model(compressed(draw, type, n, k, group, zero), i64);
                std::vector<int64_t> ids{0, 74, 3, 16, 15, 74, 31, 32, 40, 63, 64, 1};
                const auto expected = look_up(model->clone(), ids, {2, 6}, {2, 6, k});
                const auto report = use_quantized_linear(model);
                EXPECT_EQ(report.num_shared_embeddings, 1u);
                EXPECT_EQ(count(*model, "Gather"), 0u);
                EXPECT_EQ(look_up(model, ids, {2, 6}, {2, 6, k}), expected)
                    << type << " group " << group << " zero " << int(zero);
            }
}

TEST(QuantizedEmbedding, TakesIdsOf32BitsOneOrMany) {
    Draw draw(2);
    const auto table = compressed(draw, ov::element::i8, 40, 64, 32, Zero::none);
    const auto model = tied_model(table, ov::element::i32);
    const auto openvino = model->clone();
    use_quantized_linear(model);
    for (const size_t size : {1, 7, 300}) {
        std::vector<int32_t> ids(size);
        for (size_t i = 0; i < size; ++i) ids[i] = int32_t(i * 7 % 40);
        EXPECT_EQ(look_up(model, ids, {size, 1}, {size, 1, 64}),
                  look_up(openvino, ids, {size, 1}, {size, 1, 64}));
    }
}

TEST(QuantizedEmbedding, LetsGoOfTheConstants) {
    Draw draw(3);
    std::weak_ptr<ov::Node> weights;
    std::shared_ptr<ov::Model> model;
    {
        const auto table = compressed(draw, ov::element::i8, 40, 64, 32, Zero::none);
        weights = table;
        model = tied_model(table, ov::element::i64);
    }
    use_quantized_linear(model);
    EXPECT_TRUE(weights.expired());
}

TEST(QuantizedEmbedding, FractionalZeroPointsAndOtherTablesStayWithOpenVino) {
    Draw draw(4);
    const auto fractional = compressed(draw, ov::element::u4, 40, 64, 32, Zero::fractional);
    const auto first = tied_model(fractional, ov::element::i64);
    EXPECT_EQ(use_quantized_linear(first).num_shared_embeddings, 0u);
    EXPECT_EQ(count(*first, "Gather"), 1u);

    const auto table = compressed(draw, ov::element::i8, 40, 64, 32, Zero::none);
    const auto other = compressed(draw, ov::element::i8, 40, 64, 32, Zero::none);
    const auto ids =
        std::make_shared<ov::op::v0::Parameter>(ov::element::i64, ov::PartialShape{-1});
    const auto axis = ov::op::v0::Constant::create(ov::element::i32, {}, {0});
    const auto rows = std::make_shared<ov::op::v8::Gather>(table, ids, axis);
    const auto head = std::make_shared<ov::op::v0::MatMul>(rows, other, false, true);
    const auto second =
        std::make_shared<ov::Model>(ov::OutputVector{head}, ov::ParameterVector{ids});
    EXPECT_EQ(use_quantized_linear(second).num_shared_embeddings, 0u);
    EXPECT_EQ(count(*second, "Gather"), 1u);
}

TEST(QuantizedEmbedding, RefusesATokenOutsideTheTable) {
    Draw draw(5);
    const auto model =
        tied_model(compressed(draw, ov::element::i8, 40, 64, 32, Zero::none), ov::element::i64);
    use_quantized_linear(model);
    for (const int64_t id : {int64_t(40), int64_t(-1)}) {
        try {
            look_up<int64_t>(model, {0, id}, {1, 2}, {1, 2, 64});
            FAIL() << "token " << id << " was taken";
        } catch (const std::exception& error) {
            EXPECT_NE(std::string(error.what()).find("embedding of 40 rows"), std::string::npos)
                << error.what();
        }
    }
}

}  // namespace
}  // namespace pagewheel
