// Graphs of compressed weights, drawn at random.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/subtract.hpp"
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

}  // namespace pagewheel
