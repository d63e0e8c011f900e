#include "graph/passes.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/token_layout.hpp"
#include "model/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/result.hpp"
#include "openvino/op/util/gather_base.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::Parameter;
using ov::op::v1::Reshape;
using NodePointer = std::shared_ptr<ov::Node>;
using Output = ov::Output<ov::Node>;
using Input = ov::Input<ov::Node>;

/// Decoders need two or three. More is a graph made to take long.
constexpr size_t max_searches = 32;

/// Whether the input reads rows that can be fewer: of attention only the queries are.
bool reads_rows(const Input& input) {
    return !is_paged_attention(*input.get_node()) || input.get_index() == PagedAttention::query;
}

/// OpenVINO's attention writes and attends in one go, and its scores are of all its queries. A
/// state needs all tokens.
bool is_allowed(ov::Node& node) {
    if (ov::is_type<Parameter>(&node) || node.get_output_size() == 0 || keeps_state(node))
        return false;
    if (!is_paged_attention(node) || ov::is_type<PagedAttention>(&node)) return true;
    return !writes_kv_cache(node) &&
           node.output(openvino_scores_output).get_target_inputs().empty();
}

/// The nodes that can be computed for logits indices alone: token by token, and read by nothing but
/// each other and the gathering of the logits. Does not change the model.
class FastPrefillNodes {
public:
    /// `end` is the input that reads rows for the logits.
    FastPrefillNodes(const ov::Model& model, const Input& end)
        : m_nodes(model.get_ordered_ops()), m_layouts(model), m_end(end) {
        for (size_t i = 0; i < max_searches; ++i) {
            search();
            if (!refuse_what_cannot_be_read()) return;
        }
        m_nodes_at_indices.clear();
        m_gave_up = true;
    }

    /// The model's nodes, in an order in which each comes after what it reads.
    const std::vector<std::shared_ptr<ov::Node>>& nodes() const { return m_nodes; }
    const TokenLayouts& layouts() const { return m_layouts; }
    bool contains(const ov::Node* node) const { return m_nodes_at_indices.count(node) != 0; }
    bool empty() const { return m_nodes_at_indices.empty(); }

    /// Whether the node is a Reshape whose pattern says how many rows there are by something that
    /// has all rows: it needs another pattern.
    bool needs_pattern(const ov::Node* node) const {
        return contains(node) && m_patched.count(node) != 0;
    }

    /// Whether a fast prefill node reads rows there that are computed for all tokens.
    bool is_border(const Input& input) const {
        const Output source = input.get_source_output();
        return contains(input.get_node()) && !contains(source.get_node()) &&
               m_layouts.of(source).is_rows() && reads_rows(input);
    }

    /// Whether the node is attention whose output is read for logits indices alone.
    bool is_attention_at_logits_indices(ov::Node& node) const {
        return is_paged_attention(node) &&
               (contains(&node) || is_read_at_logits_indices_alone(node));
    }

    /// What keeps more nodes from being among them, one sentence each.
    std::vector<std::string> obstacles() const {
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

private:
    using NodeSet = std::unordered_set<const ov::Node*>;

    bool is_other_output(ov::Node& node) const {
        return ov::is_type<ov::op::v0::Result>(&node) &&
               m_layouts.of(node.input_value(0)).is_rows();
    }

    bool is_unknown(const Output& output) const {
        return m_layouts.of(output).kind == TokenValue::Kind::UNKNOWN;
    }

    bool begins_unknown(ov::Node& node) const {
        if (ov::is_type<Parameter>(&node) || node.get_output_size() == 0 ||
            !is_unknown(node.output(0)))
            return false;
        const ov::OutputVector sources = node.input_values();
        return std::none_of(sources.begin(), sources.end(),
                            [&](const Output& source) { return is_unknown(source); });
    }

    bool is_computed_by_token(ov::Node& node) const {
        if (is_paged_attention(node)) return m_layouts.of(node.output(0)).is_rows();
        const ov::OutputVector outputs = node.outputs();
        return std::all_of(outputs.begin(), outputs.end(), [&](const Output& output) {
            const TokenValue& value = m_layouts.of(output);
            return value.is_rows() || value.counts_tokens();
        });
    }

    bool is_read_at_logits_indices_alone(ov::Node& node) const {
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

    /// Whether the reader gets nothing that changes if rows are fewer.
    bool ignores_row_count(const Input& reader) const {
        const ov::Node* node = reader.get_node();
        return m_no_row_counts.count(node) != 0 ||
               (reader.get_index() == reshape_pattern && needs_pattern(node));
    }

    /// Lengths of dimensions that do not count tokens, or whose readers do not care how many there
    /// are.
    bool ignores_row_count(ov::Node& node) const {
        if (node.get_output_size() != 1) return false;
        const TokenValue& value = m_layouts.of(node.output(0));
        if (value.kind != TokenValue::Kind::SHAPE) return false;
        if (!value.counts_tokens()) return true;
        const auto readers = node.output(0).get_target_inputs();
        return std::all_of(readers.begin(), readers.end(),
                           [&](const Input& reader) { return ignores_row_count(reader); });
    }

    void search() {
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
    NodeSet counting_logits_indices() const {
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
    bool refuse_what_cannot_be_read() {
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
                const bool patches = miscounted && ov::is_type<Reshape>(node) &&
                                     input.get_index() == reshape_pattern;
                changed = (patches ? m_patched : m_refused).insert(node.get()).second || changed;
            }
        }
        return changed;
    }

    std::vector<std::shared_ptr<ov::Node>> m_nodes;
    TokenLayouts m_layouts;
    ov::Input<ov::Node> m_end;
    NodeSet m_nodes_at_indices;
    NodeSet m_no_row_counts;  // lengths whose readers do not care how many rows there are
    NodeSet m_patched;        // see needs_pattern()
    NodeSet m_refused;        // nodes that would read what fast prefill nodes cannot
    bool m_gave_up = false;
};

/// A norm has seven, one of which two others read.
constexpr size_t max_cheap_operations = 12;

/// Gathers `rows`, i64 [n] of the batch's tokens, of all that fast prefill nodes read of others,
/// and lets fast prefill nodes read that. What such rows follow from by a few cheap operations, as
/// norms, is computed of gathered rows anew: there it joins the matrices that read it. Attention
/// reads tables of logits indices; OpenVINO's gets inputs for them (ports::logits_*). Shapes are
/// not inferred yet.
class Gathering {
public:
    Gathering(ov::Model& model, const FastPrefillNodes& nodes, Output rows)
        : m_model(model), m_nodes(nodes), m_rows(std::move(rows)) {}

    void rewrite() {
        // In the order of the graph: what is gathered first, others are computed from.
        std::vector<std::pair<Output, std::vector<Input>>> borders;
        std::map<Output, size_t> known;
        for (const NodePointer& node : m_nodes.nodes())
            for (const Input& input : node->inputs()) {
                if (!m_nodes.is_border(input)) continue;
                const Output source = input.get_source_output();
                const auto [at, fresh] = known.emplace(source, borders.size());
                if (fresh) borders.push_back({source, {}});
                borders[at->second].second.push_back(input);
            }
        sort_by_graph(borders);
        for (const auto& [source, readers] : borders)
            if (!can_repeat(source)) gather(source, layout(source).axis());
        for (auto& [source, readers] : borders)
            for (Input& reader : readers) reader.replace_source_output(repeated(source));
        for (const NodePointer& node : m_nodes.nodes()) {
            if (!m_nodes.contains(node.get())) continue;
            if (m_nodes.needs_pattern(node.get())) set_pattern(*node);
            if (is_paged_attention(*node)) use_logits_tables(node);
        }
    }

private:
    template <class Borders>
    void sort_by_graph(Borders& borders) const {
        std::unordered_map<const ov::Node*, size_t> places;
        for (const NodePointer& node : m_nodes.nodes()) places.emplace(node.get(), places.size());
        std::stable_sort(borders.begin(), borders.end(), [&](const auto& a, const auto& b) {
            return places.at(a.first.get_node()) < places.at(b.first.get_node());
        });
    }

    /// Norms and the like cost less than what it costs to have them apart from what follows them.
    bool is_cheap(const ov::Node& node) const {
        if (ov::is_type<Parameter>(&node) || ov::is_type<ov::op::v0::MatMul>(&node) ||
            is_paged_attention(node) || keeps_state(node) || node.get_output_size() != 1)
            return false;
        if (ov::is_type<ov::op::util::GatherBase>(&node) && !layout(node.input_value(0)).is_rows())
            return false;  // an embedding
        for (const Output& source : node.input_values())
            if (layout(source).kind == TokenValue::Kind::SHAPE) return false;
        return true;
    }

    const TokenValue& layout(const Output& output) const { return m_nodes.layouts().of(output); }

    /// Whether the value's logits indices follow by a few cheap operations from rows that are
    /// gathered.
    bool can_repeat(const Output& output) const {
        size_t visits = max_cheap_operations;
        return can_repeat(output, visits);
    }
    bool can_repeat(const Output& output, size_t& visits) const {
        if (m_gathered.count(output) != 0) return true;
        const ov::Node& node = *output.get_node();
        if (visits == 0 || !layout(output).is_rows() || !is_cheap(node)) return false;
        --visits;
        const ov::OutputVector sources = node.input_values();
        return std::all_of(sources.begin(), sources.end(), [&](const Output& source) {
            return !layout(source).is_rows() || can_repeat(source, visits);
        });
    }

    Output repeated(const Output& output) {
        const auto known = m_gathered.find(output);
        if (known != m_gathered.end()) return known->second;
        ov::OutputVector inputs = output.get_node()->input_values();
        for (Output& input : inputs)
            if (layout(input).is_rows()) input = repeated(input);
        const NodePointer copy = output.get_node()->clone_with_new_inputs(inputs);
        copy->set_friendly_name(output.get_node()->get_friendly_name() + ".gathered");
        return m_gathered[output] = copy->output(output.get_index());
    }

    Output gather(const Output& output, size_t axis) {
        const auto gather = std::make_shared<ov::op::v8::Gather>(
            output, m_rows, Constant::create(ov::element::i64, {}, {int64_t(axis)}));
        gather->set_friendly_name(output.get_node()->get_friendly_name() + ".gathered");
        return m_gathered[output] = gather;
    }

    /// Elements and other dimensions say how many rows there are.
    void set_pattern(ov::Node& reshape) const {
        const TokenValue& value = layout(reshape.output(0));
        std::vector<int64_t> pattern;
        for (const Extent& extent : value.extents)
            pattern.push_back(extent.tokens ? -1 : extent.size);
        reshape.input(reshape_pattern)
            .replace_source_output(Constant::create(ov::element::i64, {pattern.size()}, pattern));
    }

    void use_logits_tables(const NodePointer& node) {
        if (const auto native = ov::as_type_ptr<PagedAttention>(node)) {
            PagedAttention::Attributes attributes = native->attributes();
            attributes.logits_indices = true;
            native->set_attributes(std::move(attributes));
            return;
        }
        // It writes none, but wants as many keys and values as queries.
        for (const size_t input : {openvino_input::key, openvino_input::value}) {
            const Output source = node->input_value(input);
            const auto known = m_gathered.find(source);
            constexpr size_t tokens = 0;  // [tokens, heads * head size], whatever gives them
            node->input(input).replace_source_output(
                known != m_gathered.end() ? known->second : gather(source, tokens));
        }
        for (const auto& [input, name] :
             {std::pair(openvino_input::past_lens, ports::logits_past_lens),
              std::pair(openvino_input::subsequence_begins, ports::logits_subsequence_begins),
              std::pair(openvino_input::block_indices, ports::logits_block_indices),
              std::pair(openvino_input::block_indices_begins, ports::logits_block_indices_begins)})
            node->input(input).replace_source_output(table(name));
    }

    Output table(const std::string& name) {
        const auto known = m_tables.find(name);
        if (known != m_tables.end()) return known->second;
        return m_tables[name] = add_parameter(m_model, name, ov::element::i32, {-1});
    }

    ov::Model& m_model;
    const FastPrefillNodes& m_nodes;
    Output m_rows;
    std::map<Output, Output> m_gathered;  ///< the logits indices of a value
    std::map<std::string, Output> m_tables;
};

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

/// Does what skip_unread_rows() does, but leaves the model half done when it throws.
FastPrefillReport skip(ov::Model& model, const FastPrefillOptions& options) {
    fold_lengths(model);
    replace_slice_assigns(model);  // of shapes that are known by then
    ov::Node& gather = gather_of_logits(model);
    const FastPrefillNodes nodes(model, gather.input(0));
    FastPrefillReport report = report_of(nodes);
    if (nodes.empty()) return report;
    const bool apart = options.observes_attention && report.num_native_attentions > 0;
    Gathering(model, nodes,
              apart ? add_parameter(model, ports::logits_indices, ov::element::i64, {-1})
                    : gather.input_value(1))
        .rewrite();
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
