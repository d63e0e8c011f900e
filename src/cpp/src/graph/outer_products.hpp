// Products of a column and a row without a MatMul.
#pragma once

#include <cstddef>
#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// A f32 MatMul that adds up one product each, [..., m, 1] by [..., 1, n], becomes a Multiply,
/// which gives the same: rotary angles are positions times frequencies, and OpenVINO's MatMul
/// takes 30 to 40 microseconds for them. Returns how many.
size_t multiply_outer_products(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
