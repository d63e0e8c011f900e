#include "graph/fast_prefill.hpp"

#include <stdexcept>

#include "base/check.hpp"
#include "graph/compute_at_logits_indices.hpp"
#include "graph/fast_prefill_nodes.hpp"
#include "graph/fold_lengths.hpp"
#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/port_names.hpp"
#include "graph/slice_assign.hpp"
#include "openvino/op/matmul.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using NodePointer = std::shared_ptr<ov::Node>;

/// Multiply-adds of a token with a constant matrix; 0 for what is no such product, and behind the
/// gathering of the logits, where nothing is known to be rows of all tokens.
double work_of(ov::Node& node, const TokenLayouts& layouts) {
    const auto* matmul = ov::as_type<const ov::op::v0::MatMul>(&node);
    if (!matmul || !layouts.of(node.output(0)).is_rows() ||
        !layouts.of(node.input_value(0)).is_rows() ||
        layouts.of(node.input_value(1)).kind != TokenValue::Kind::CONSTANT)
        return 0;
    const Extents& input = layouts.of(node.input_value(0)).extents;
    auto work = double(input[input.size() - (matmul->get_transpose_a() ? 2 : 1)].size);
    for (const Extent& extent : layouts.of(node.output(0)).extents) work *= double(extent.size);
    return work;
}

FastPrefillReport report_of(const FastPrefillNodes& nodes) {
    FastPrefillReport report;
    double all = 0, skipped = 0;
    for (const NodePointer& node : nodes.nodes()) {
        const double work = work_of(*node, nodes.layouts());
        all += work;
        report.num_layers += nodes.is_attention_at_logits_indices(*node);
        if (!nodes.contains(node.get())) continue;
        skipped += work;
        report.num_attentions += is_paged_attention(*node);
        report.num_native_attentions += ov::is_type<PagedAttention>(node);
    }
    report.work_skipped = all > 0 ? skipped / all : 0;
    report.why = nodes.obstacles();
    return report;
}

/// The Gather of gather_logits().
ov::Node& gather_of_logits(const ov::Model& model) {
    for (const auto& parameter : model.get_parameters())
        if (parameter->get_friendly_name() == ports::sampled_tokens_indices)
            return *parameter->output(0).get_target_inputs().begin()->get_node();
    throw std::logic_error("the model's logits are not gathered");
}

/// As skip_unread_rows(), but leaves the model half done when it throws.
FastPrefillReport skip(ov::Model& model, const FastPrefillOptions& options) {
    fold_lengths(model);
    replace_slice_assigns(model);  // of shapes that are known by then
    ov::Node& gather = gather_of_logits(model);
    const FastPrefillNodes nodes(model, gather.input(0));
    FastPrefillReport report = report_of(nodes);
    if (nodes.empty()) return report;
    const bool apart = options.observes_attention && report.num_native_attentions > 0;
    compute_at_logits_indices(
        model, nodes,
        apart ? add_parameter(model, ports::logits_indices, ov::element::i64, {-1})
              : gather.input_value(1));
    if (!apart) gather.output(0).replace(gather.input_value(0));
    model.validate_nodes_and_infer_types();
    return report;
}

}  // namespace

FastPrefillReport skip_unread_rows(std::shared_ptr<ov::Model>& model,
                                   const FastPrefillOptions& options) {
    const std::shared_ptr<ov::Model> whole = model->clone();
    try {
        return skip(*model, options);
    } catch (const ov::Exception& error) {
        model = whole;
        FastPrefillReport report;
        report.failed = true;
        report.why = {concat("fast prefill is left out, as OpenVINO does not take the graph with ",
                             "fewer rows: ", reason(error))};
        return report;
    }
}

}  // namespace pagewheel
