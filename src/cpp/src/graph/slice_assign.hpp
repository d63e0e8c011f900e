// Assignments to slices, as PyTorch's are exported, without indices of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// `into` with elements [begin, end) along dimension `axis` taken from `update`; `end` may lie
/// behind the last element.
struct SliceAssign {
    ov::Output<ov::Node> into, update;
    ov::Output<ov::Node> shaped;  ///< whose shape the indices were made of: must be that of `into`
    size_t axis = 0;
    int64_t begin = 0, end = 0;
};

/// The assignment that `node` ends, in the form that OpenVINO gives `x[begin:end] = update`:
///
///     indices = Reshape(Slice(Reshape(Range(0, ReduceProd(ShapeOf(shaped)), 1),
///                                     ShapeOf(shaped))), [-1, 1])
///     Reshape(ScatterNDUpdate(Reshape(into, [-1]), indices, Reshape(update, [-1])),
///             ShapeOf(shaped))
///
/// None if it is something else.
std::optional<SliceAssign> find_slice_assign(const ov::Node& node);

/// Such assignments, where `into` is known to have the shape of `shaped` (TokenLayouts), become a
/// Concat of what stays and what is new, which keeps tokens apart and costs less.
void replace_slice_assigns(ov::Model& model);

}  // namespace pagewheel
