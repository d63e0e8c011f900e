// Graphs of compressed weights, drawn at random, and what tests ask of graphs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/openvino_core.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/subtract.hpp"
#include "openvino/runtime/core.hpp"
#include "openvino/runtime/properties.hpp"
#include "openvino/runtime/tensor.hpp"

namespace pagewheel {

using Node = std::shared_ptr<ov::Node>;

/// Draws constants.
class Draw {
public:
    explicit Draw(unsigned seed) : m_random(seed) {}

    Node integers(const ov::element::Type& type, const ov::Shape& shape) {
        const bool is_signed = type == ov::element::i4 || type == ov::element::i8;
        const int half = type.bitwidth() == 4 ? 8 : 128;
        std::uniform_int_distribution<int> any(is_signed ? -half : 0,
                                               (is_signed ? half : 2 * half) - 1);
        std::vector<int> values(ov::shape_size(shape));
        for (int& v : values) v = any(m_random);
        return ov::op::v0::Constant::create(type, shape, values);
    }
    Node floats(const ov::element::Type& type, const ov::Shape& shape, float low, float high) {
        std::uniform_real_distribution<float> any(low, high);
        std::vector<float> values(ov::shape_size(shape));
        for (float& v : values) v = any(m_random);
        return ov::op::v0::Constant::create(type, shape, values);
    }
    ov::Tensor input(const ov::Shape& shape) {
        std::normal_distribution<float> any(0, 1);
        ov::Tensor tensor(ov::element::f32, shape);
        for (size_t i = 0; i < tensor.get_size(); ++i) tensor.data<float>()[i] = any(m_random);
        return tensor;
    }

private:
    std::mt19937 m_random;
};

inline Node converted(const Node& node, const ov::element::Type& type) {
    return std::make_shared<ov::op::v0::Convert>(node, type);
}

inline Node reshaped(const Node& node, size_t n, size_t k) {
    const auto shape =
        ov::op::v0::Constant::create(ov::element::i64, {2}, {int64_t(n), int64_t(k)});
    return std::make_shared<ov::op::v1::Reshape>(node, shape, false);
}

enum class Zero { none, integer, fractional };

/// Weights in groups as NNCF and the converter write them; `group` 0: one per row, in two
/// dimensions.
inline Node compressed(Draw& draw, const ov::element::Type& type, size_t n, size_t k, size_t group,
                       Zero zero) {
    const ov::Shape shape = group ? ov::Shape{n, k / group, group} : ov::Shape{n, k};
    const ov::Shape per_group = group ? ov::Shape{n, k / group, 1} : ov::Shape{n, 1};
    const auto precision = zero == Zero::fractional ? ov::element::f32 : ov::element::f16;
    Node node = converted(draw.integers(type, shape), precision);
    if (zero == Zero::integer)
        node = std::make_shared<ov::op::v1::Subtract>(
            node, converted(draw.integers(type, per_group), precision));
    if (zero == Zero::fractional)
        node = std::make_shared<ov::op::v1::Subtract>(
            node, draw.floats(precision, per_group, 0, float(1u << type.bitwidth())));
    const float scale = type.bitwidth() == 4 ? 0.01f : 0.001f;
    Node scales = draw.floats(ov::element::f16, per_group, scale / 2, scale);
    if (zero == Zero::fractional) scales = converted(scales, precision);
    node = std::make_shared<ov::op::v1::Multiply>(node, scales);
    if (group) node = reshaped(node, n, k);
    return precision == ov::element::f32 ? node : converted(node, ov::element::f32);
}

/// Every output, in f32 with activations as they are (but where the graph's own ops quantise them).
inline std::vector<std::vector<float>> run(const std::shared_ptr<ov::Model>& model,
                                           const ov::Tensor& x) {
    ov::Core& core = openvino_core();
    auto compiled =
        core.compile_model(model, "CPU", ov::hint::inference_precision(ov::element::f32),
                           ov::hint::dynamic_quantization_group_size(0));
    auto request = compiled.create_infer_request();
    request.set_input_tensor(x);
    request.start_async();
    request.wait();
    std::vector<std::vector<float>> outputs;
    for (size_t i = 0; i < compiled.outputs().size(); ++i) {
        const ov::Tensor tensor = request.get_output_tensor(i);
        outputs.emplace_back(tensor.data<float>(), tensor.data<float>() + tensor.get_size());
    }
    return outputs;
}

/// Root mean square of the difference over that of `b`.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
        difference += std::pow(double(a[i]) - double(b[i]), 2);
        norm += std::pow(double(b[i]), 2);
    }
    return std::sqrt(difference / norm);
}

inline size_t count(const ov::Model& model, const std::string& type) {
    size_t found = 0;
    for (const auto& node : model.get_ops()) found += node->get_type_name() == type;
    return found;
}

}  // namespace pagewheel
