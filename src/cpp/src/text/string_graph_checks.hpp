// What openvino-tokenizers' operations take from constants and read without a check of their own.
#pragma once

#include <memory>
#include <string>

#include "openvino/core/model.hpp"
#include "openvino/op/constant.hpp"

namespace pagewheel {

/// Null where the node's input is no constant.
std::shared_ptr<ov::op::v0::Constant> constant_input(const ov::Node& node, size_t index);

/// Inputs `first` to `first` + 2 of a node: the offsets where each string begins and ends, i32, and
/// the bytes of all, u8. False where they are no such constants.
struct StringTable {
    StringTable(const ov::Node& node, size_t first);
    explicit operator bool() const { return begins != nullptr; }
    size_t size() const { return ov::shape_size(begins->get_shape()); }

    std::shared_ptr<ov::op::v0::Constant> begins, ends, bytes;
};

/// Throws InvalidArgument, naming `where` and the node, for tables whose strings lie outside
/// of their bytes and for normalisation tables that lead out of themselves.
void check_string_graph(const ov::Model& graph, const std::string& where);

}  // namespace pagewheel
