// Lets nodes that only lead to logits have fewer rows.
#pragma once

#include "graph/fast_prefill_nodes.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// Gathers `rows`, i64 [n] of the batch's tokens, of all that fast prefill nodes read of others,
/// and lets fast prefill nodes read that. What such rows follow from by a few cheap operations, as
/// norms, is computed of gathered rows anew: there it joins the matrices that read it. Attention
/// reads tables of logits indices; OpenVINO's gets inputs for them (ports::logits_*). Shapes are
/// not inferred yet.
void compute_at_logits_indices(ov::Model& model, const FastPrefillNodes& nodes,
                               const ov::Output<ov::Node>& rows);

}  // namespace pagewheel
