// Lets nodes that only lead to logits have fewer rows.
#pragma once

#include "graph/asked_nodes.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Gathers `rows`, i64 [n] of the batch's tokens, of all that asked nodes read of others, and lets
/// asked nodes read that. What such rows follow from by a few cheap operations, as norms, is
/// computed of gathered rows anew: there it joins the matrices that read it. Attention reads tables
/// of asked rows; OpenVINO's gets inputs for them (ports::asked_*). Shapes are not inferred yet.
void compute_asked_rows(ov::Model& model, const AskedNodes& asked,
                        const ov::Output<ov::Node>& rows);

}  // namespace pagewheel
