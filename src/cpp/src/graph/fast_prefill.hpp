// Computes what leads to logits, and to nothing else, for the rows whose logits are asked for.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

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

struct FastPrefillOptions {
    /// Attention of more rows than those whose logits are wanted may be observed: the model gets an
    /// input logits_indices, and its sampled_tokens_indices count logits indices.
    bool observes_attention = false;
};

/// What a prompt's tokens are spared.
struct FastPrefillReport {
    /// Layers whose attention's output is read for logits indices alone.
    size_t num_layers = 0;
    /// Those of them whose attention has queries for logits indices alone, too.
    size_t num_attentions = 0;
    /// Of pagewheel's: these read the tables of logits indices.
    size_t num_native_attentions = 0;
    /// The share, 0 to 1, of the multiply-adds with constant matrices (all experts', not the
    /// vocabulary's) that a token nobody asks for is spared.
    double work_skipped = 0;
    /// OpenVINO did not take the graph with fewer rows: it is as it was.
    bool failed = false;
    /// What keeps more from being left out, one sentence each; empty where only keys and values do.
    std::vector<std::string> why;
};

/// Moves the gathering of gather_logits() up to where it finds what the cache depends on.
/// Behind the last layer that writes keys and values lies nothing but what logits need: in a model
/// whose last layers read the caches of earlier ones these layers, and in every model all of the
/// last writing layer but its keys and values. All of that then has logits indices: of each
/// sequence the last tokens of its chunk, as many as are asked for, none for a chunk in the middle
/// of a prompt.
///
/// It follows what is computed token by token (TokenLayouts), across attention if that can have
/// other queries than keys: pagewheel's can. OpenVINO's writes and attends in one go, so that it
/// can only where it writes nothing. What is not known to be computed token by token stays as it
/// is, with all that follows from it or leads to it.
///
/// After gather_logits() and use_native_attention(), before all that merges operations. Inputs that
/// it adds: see ports::logits_*. Lengths and assignments to slices are written out in any case
/// (fold_lengths(), replace_slice_assigns()).
///
/// Sources: You Only Cache Once (arXiv 2405.05254) skips the second half of a decoder-decoder at
/// prefill; the suffix and the last layer are the same thing, seen from the logits.
FastPrefillReport skip_unread_rows(std::shared_ptr<ov::Model>& model,
                                   const FastPrefillOptions& options);

}  // namespace pagewheel
