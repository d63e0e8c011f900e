// The tables of a batch as one input of the model.
#pragma once

#include <memory>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// Puts an input batch_tables, i32 [entries], in the place of an AttentionTables node and of the
/// inputs that it read: whoever fills a batch packs its tables at no cost, the node takes 20
/// microseconds and more. Does nothing where there is not exactly one such node, or anything else
/// reads one of those inputs.
void take_packed_tables(const std::shared_ptr<ov::Model>& model);

}  // namespace pagewheel
