#include "graph/fast_prefill_nodes.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/result.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Parameter;
using ov::op::v1::Reshape;
using NodePointer = std::shared_ptr<ov::Node>;
using Output = ov::Output<ov::Node>;
using Input = ov::Input<ov::Node>;

/// Decoders need two or three. More is a graph made to take long.
constexpr size_t max_searches = 32;

/// Of attention only the queries are rows that can be fewer.
bool reads_rows(const Input& input) {
    return !is_paged_attention(*input.get_node()) || input.get_index() == PagedAttention::query;
}

/// OpenVINO's attention writes and attends in one go, and its scores are of all its queries.
bool is_allowed(ov::Node& node) {
    if (ov::is_type<Parameter>(&node) || node.get_output_size() == 0) return false;
    if (!is_paged_attention(node) || ov::is_type<PagedAttention>(&node)) return true;
    return !writes_kv_cache(node) &&
           node.output(openvino_scores_output).get_target_inputs().empty();
}

}  // namespace

FastPrefillNodes::FastPrefillNodes(const ov::Model& model, const Input& end)
    : m_nodes(model.get_ordered_ops()), m_layouts(model), m_end(end) {
    for (size_t i = 0; i < max_searches; ++i) {
        search();
        if (!refuse_what_cannot_be_read()) return;
    }
    m_nodes_at_indices.clear();
    m_gave_up = true;
}

bool FastPrefillNodes::is_border(const Input& input) const {
    const Output source = input.get_source_output();
    return contains(input.get_node()) && !contains(source.get_node()) &&
           m_layouts.of(source).is_rows() && reads_rows(input);
}

bool FastPrefillNodes::is_attention_at_logits_indices(ov::Node& node) const {
    return is_paged_attention(node) && (contains(&node) || is_read_at_logits_indices_alone(node));
}

std::vector<std::string> FastPrefillNodes::obstacles() const {
    if (m_gave_up)
        return {concat("the search for what only logits need was given up after ", max_searches,
                       " rounds")};
    std::vector<std::string> sentences;
    bool unknown = false;
    for (const NodePointer& node : m_nodes) {
        if (is_other_output(*node))
            sentences.push_back(concat("the output ", node->get_friendly_name(),
                                       " is of all tokens, and what it is computed from"));
        if (contains(node.get()) || !is_read_at_logits_indices_alone(*node)) continue;
        if (is_paged_attention(*node))
            sentences.push_back(
                concat(node->get_friendly_name(),
                       " has queries for all tokens, and what is before it is computed for "
                       "all: OpenVINO's attention cannot write more keys than it has queries"));
        else if (m_refused.count(node.get()) != 0)
            sentences.push_back(concat(node->get_friendly_name(), " (", node->get_type_name(),
                                       ") counts all tokens"));
        else
            unknown = unknown || is_unknown(node->output(0));
    }
    // What follows from something unknown is unknown: the first such node is the reason.
    for (const NodePointer& node : m_nodes)
        if (unknown && begins_unknown(*node)) {
            sentences.push_back(concat(node->get_friendly_name(), " (", node->get_type_name(),
                                       ") is not known to keep tokens apart"));
            break;
        }
    return sentences;
}

bool FastPrefillNodes::is_other_output(ov::Node& node) const {
    return ov::is_type<ov::op::v0::Result>(&node) && m_layouts.of(node.input_value(0)).is_rows();
}

bool FastPrefillNodes::is_unknown(const Output& output) const {
    return m_layouts.of(output).kind == TokenValue::Kind::UNKNOWN;
}

bool FastPrefillNodes::begins_unknown(ov::Node& node) const {
    if (ov::is_type<Parameter>(&node) || node.get_output_size() == 0 || !is_unknown(node.output(0)))
        return false;
    const ov::OutputVector sources = node.input_values();
    return std::none_of(sources.begin(), sources.end(),
                        [&](const Output& source) { return is_unknown(source); });
}

bool FastPrefillNodes::is_computed_by_token(ov::Node& node) const {
    if (is_paged_attention(node)) return m_layouts.of(node.output(0)).is_rows();
    const ov::OutputVector outputs = node.outputs();
    return std::all_of(outputs.begin(), outputs.end(), [&](const Output& output) {
        const TokenValue& value = m_layouts.of(output);
        return value.is_rows() || value.counts_tokens();
    });
}

/// Whether the reader gets nothing that changes if rows are fewer.
bool FastPrefillNodes::ignores_row_count(const Input& reader) const {
    const ov::Node* node = reader.get_node();
    return m_no_row_counts.count(node) != 0 ||
           (reader.get_index() == reshape_pattern && needs_pattern(node));
}

bool FastPrefillNodes::is_read_at_logits_indices_alone(ov::Node& node) const {
    bool any = false;
    for (const Output& output : node.outputs())
        for (const Input& reader : output.get_target_inputs()) {
            if (ignores_row_count(reader)) continue;
            any = true;
            if (reader != m_end && !(contains(reader.get_node()) && reads_rows(reader)))
                return false;
        }
    return any;
}

/// Lengths of dimensions that do not count tokens, or whose readers do not care how many there are.
bool FastPrefillNodes::ignores_row_count(ov::Node& node) const {
    if (node.get_output_size() != 1) return false;
    const TokenValue& value = m_layouts.of(node.output(0));
    if (value.kind != TokenValue::Kind::SHAPE) return false;
    if (!value.counts_tokens()) return true;
    const auto readers = node.output(0).get_target_inputs();
    return std::all_of(readers.begin(), readers.end(),
                       [&](const Input& reader) { return ignores_row_count(reader); });
}

void FastPrefillNodes::search() {
    m_nodes_at_indices.clear();
    m_no_row_counts.clear();
    for (auto node = m_nodes.rbegin(); node != m_nodes.rend(); ++node) {
        if (ignores_row_count(**node))
            m_no_row_counts.insert(node->get());
        else if (m_refused.count(node->get()) == 0 && is_allowed(**node) &&
                 is_computed_by_token(**node) && is_read_at_logits_indices_alone(**node))
            m_nodes_at_indices.insert(node->get());
    }
}

/// The nodes that count rows, and all of them are logits indices.
FastPrefillNodes::NodeSet FastPrefillNodes::counting_logits_indices() const {
    NodeSet counting;
    for (const NodePointer& node : m_nodes) {
        if (node->get_output_size() == 0 || !m_layouts.of(node->output(0)).counts_tokens())
            continue;
        bool counts = true;
        for (const Output& source : node->input_values()) {
            const TokenValue& value = m_layouts.of(source);
            counts = counts && (!value.is_rows() || contains(source.get_node())) &&
                     (!value.counts_tokens() || counting.count(source.get_node()) != 0);
        }
        if (counts) counting.insert(node.get());
    }
    return counting;
}

/// Refuses fast prefill nodes that would read what they cannot. False if there are none.
bool FastPrefillNodes::refuse_what_cannot_be_read() {
    bool changed = false;
    const NodeSet counting = counting_logits_indices();
    for (const NodePointer& node : m_nodes) {
        if (!contains(node.get()) || m_layouts.of(node->output(0)).counts_tokens()) continue;
        for (const Input& input : node->inputs()) {
            const Output source = input.get_source_output();
            const TokenValue& value = m_layouts.of(source);
            const bool repeated = is_border(input) && value.extents[value.axis()].size != 1;
            const bool miscounted = reads_rows(input) && value.counts_tokens() &&
                                    !ignores_row_count(input) &&
                                    counting.count(source.get_node()) == 0;
            if (!repeated && !miscounted) continue;
            const bool patches =
                miscounted && ov::is_type<Reshape>(node) && input.get_index() == reshape_pattern;
            changed = (patches ? m_patched : m_refused).insert(node.get()).second || changed;
        }
    }
    return changed;
}

}  // namespace pagewheel
