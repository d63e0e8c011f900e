#include "graph/fast_prefill.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "check.hpp"
#include "graph/node_queries.hpp"
#include "graph/port_names.hpp"
#include "graph/slice_assign.hpp"
#include "graph/stock_attention.hpp"
#include "graph/token_layout.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/reshape.hpp"
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
using NodeSet = std::unordered_set<const ov::Node*>;

constexpr size_t query_input = PagedAttention::query;
constexpr size_t reshape_pattern = 1;

/// Decoders need two or three. More is a graph made to take long.
constexpr size_t max_searches = 32;

/// One after the other; a norm has seven.
constexpr size_t max_cheap_operations = 10;

/// The input of gather_logits(): what is read there is read for asked rows alone.
Input gathered_logits(const ov::Model& model) {
    for (const auto& parameter : model.get_parameters())
        if (parameter->get_friendly_name() == ports::logits_rows)
            for (const Input& reader : parameter->output(0).get_target_inputs())
                return reader.get_node()->input(0);
    check_invariant(false, "the model's logits are not gathered");
    return model.get_results()[0]->input(0);
}

/// Lengths that have nothing to do with tokens become constants, and what is computed of them: an
/// exporter writes heads and channels as what it read off another tensor. A Broadcast to the shape
/// that a value has goes.
class LengthFolder {
public:
    /// Returns whether there was anything.
    bool fold(const ov::Model& model) {
        const TokenLayouts layouts(model);
        m_folded.clear();
        for (const NodePointer& node : model.get_ordered_ops()) {
            if (node->get_output_size() != 1) continue;
            const TokenValue& value = layouts.of(node->output(0));
            if (value.kind == TokenValue::Kind::SHAPE && !value.counts_tokens())
                fix(node, value.extents);
            else if (follows_from_lengths(*node))
                compute(node);
            else if (changes_nothing(*node, layouts))
                node->output(0).replace(node->input_value(0));
        }
        return !m_folded.empty();
    }

private:
    /// What is computed of lengths is small. Weights are not.
    static constexpr size_t max_elements = 4096;

    static std::optional<size_t> num_elements(const ov::Node& node) {
        const ov::PartialShape& shape = node.get_output_partial_shape(0);
        if (shape.is_dynamic()) return {};
        return ov::shape_size(shape.to_shape());
    }

    void fix(const NodePointer& node, const Extents& extents) {
        if (num_elements(*node) != extents.size()) return;
        std::vector<int64_t> lengths;
        for (const Extent& extent : extents) lengths.push_back(extent.size);
        put(node,
            Constant::create(node->get_output_element_type(0), node->get_output_shape(0), lengths));
    }

    bool follows_from_lengths(const ov::Node& node) const {
        const ov::OutputVector sources = node.input_values();
        const auto is_constant = [](const Output& source) {
            return ov::is_type<Constant>(source.get_node());
        };
        return std::all_of(sources.begin(), sources.end(), is_constant) &&
               std::any_of(sources.begin(), sources.end(), [&](const Output& source) {
                   return m_folded.count(source.get_node()) != 0;
               });
    }

    static bool changes_nothing(ov::Node& node, const TokenLayouts& layouts) {
        const TokenValue& value = layouts.of(node.output(0));
        return std::string(node.get_type_name()) == "Broadcast" && value.is_rows() &&
               layouts.of(node.input_value(0)).extents == value.extents;
    }

    void compute(const NodePointer& node) {
        node->validate_and_infer_types();  // its shape may follow from lengths too
        const std::optional<size_t> size = num_elements(*node);
        ov::OutputVector results(1);
        if (size && *size <= max_elements && node->constant_fold(results, node->input_values()))
            put(node, results[0].get_node_shared_ptr());
    }

    void put(const NodePointer& node, const NodePointer& constant) {
        replace_with(node, constant);
        m_folded.insert(constant.get());
    }

    NodeSet m_folded;
};

/// Which nodes can be computed for asked rows alone.
class AskedNodes {
public:
    AskedNodes(const ov::Model& model, const Input& end)
        : m_nodes(model.get_ordered_ops()), m_layouts(model), m_end(end) {
        for (size_t i = 0; i < max_searches; ++i) {
            search();
            if (!settle()) return;
        }
        m_asked.clear();
        m_gave_up = true;
    }

    const std::vector<NodePointer>& nodes() const { return m_nodes; }
    const TokenLayouts& layouts() const { return m_layouts; }
    bool contains(const ov::Node* node) const { return m_asked.count(node) != 0; }
    bool empty() const { return m_asked.empty(); }

    /// Reshapes whose pattern says how many rows there are by something that has all rows.
    const NodeSet& needing_patterns() const { return m_patched; }

    /// Whether the input reads rows that are computed for all tokens, where asked ones do.
    bool is_border(const Input& input) const {
        const Output source = input.get_source_output();
        return contains(input.get_node()) && !contains(source.get_node()) &&
               m_layouts.of(source).is_rows() && reads_rows(input);
    }

    /// Attention whose output is read for asked rows alone.
    bool ends_asked(ov::Node& node) const {
        return is_paged_attention(node) && (contains(&node) || is_read_for_asked_rows_alone(node));
    }

    /// Why nodes that only asked rows are read of are computed for all tokens.
    std::vector<std::string> obstacles() const {
        if (m_gave_up)
            return {concat("the search for what only logits need was given up after ", max_searches,
                           " rounds")};
        std::vector<std::string> sentences;
        bool unknown = false;
        for (const NodePointer& node : m_nodes) {
            if (contains(node.get()) || !is_read_for_asked_rows_alone(*node)) continue;
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
    /// Of attention only the queries are rows that can be fewer.
    static bool reads_rows(const Input& input) {
        return !is_paged_attention(*input.get_node()) || input.get_index() == query_input;
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

    static bool is_allowed(ov::Node& node) {
        if (ov::is_type<Parameter>(&node) || node.get_output_size() == 0) return false;
        if (!is_paged_attention(node) || ov::is_type<PagedAttention>(&node)) return true;
        return !writes_kv_cache(node) && node.output(1).get_target_inputs().empty();
    }

    bool is_computed_by_token(ov::Node& node) const {
        if (is_paged_attention(node)) return m_layouts.of(node.output(0)).is_rows();
        const ov::OutputVector outputs = node.outputs();
        return std::all_of(outputs.begin(), outputs.end(), [&](const Output& output) {
            const TokenValue& value = m_layouts.of(output);
            return value.is_rows() || value.counts_tokens();
        });
    }

    /// Whether the input takes nothing that changes if rows are fewer.
    bool is_indifferent(const Input& reader) const {
        const ov::Node* node = reader.get_node();
        return m_indifferent.count(node) != 0 ||
               (reader.get_index() == reshape_pattern && m_patched.count(node) != 0);
    }

    bool is_read_for_asked_rows_alone(ov::Node& node) const {
        bool any = false;
        for (const Output& output : node.outputs())
            for (const Input& reader : output.get_target_inputs()) {
                if (is_indifferent(reader)) continue;
                any = true;
                if (reader != m_end && !(contains(reader.get_node()) && reads_rows(reader)))
                    return false;
            }
        return any;
    }

    /// Lengths of dimensions that do not count tokens, or that nobody takes who minds.
    bool is_indifferent(ov::Node& node) const {
        if (node.get_output_size() != 1) return false;
        const TokenValue& value = m_layouts.of(node.output(0));
        if (value.kind != TokenValue::Kind::SHAPE) return false;
        if (!value.counts_tokens()) return true;
        const auto readers = node.output(0).get_target_inputs();
        return std::all_of(readers.begin(), readers.end(),
                           [&](const Input& reader) { return is_indifferent(reader); });
    }

    void search() {
        m_asked.clear();
        m_indifferent.clear();
        for (auto node = m_nodes.rbegin(); node != m_nodes.rend(); ++node) {
            if (is_indifferent(**node))
                m_indifferent.insert(node->get());
            else if (m_refused.count(node->get()) == 0 && is_allowed(**node) &&
                     is_computed_by_token(**node) && is_read_for_asked_rows_alone(**node))
                m_asked.insert(node->get());
        }
    }

    /// The nodes that count rows, and all of them are asked rows.
    NodeSet counting_asked_rows() const {
        NodeSet counting;
        for (const NodePointer& node : m_nodes) {
            if (node->get_output_size() == 0 || !m_layouts.of(node->output(0)).counts_tokens())
                continue;
            bool asked = true;
            for (const Output& source : node->input_values()) {
                const TokenValue& value = m_layouts.of(source);
                asked = asked && (!value.is_rows() || contains(source.get_node())) &&
                        (!value.counts_tokens() || counting.count(source.get_node()) != 0);
            }
            if (asked) counting.insert(node.get());
        }
        return counting;
    }

    /// Takes down what asked nodes would read that they cannot. False if there is no such thing.
    bool settle() {
        bool changed = false;
        const NodeSet counting = counting_asked_rows();
        for (const NodePointer& node : m_nodes) {
            if (!contains(node.get()) || m_layouts.of(node->output(0)).counts_tokens()) continue;
            for (const Input& input : node->inputs()) {
                const Output source = input.get_source_output();
                const TokenValue& value = m_layouts.of(source);
                const bool repeated = is_border(input) && value.extents[value.axis()].size != 1;
                const bool miscounted = reads_rows(input) && value.counts_tokens() &&
                                        !is_indifferent(input) &&
                                        counting.count(source.get_node()) == 0;
                if (!repeated && !miscounted) continue;
                const bool patches = miscounted && ov::is_type<Reshape>(node) &&
                                     input.get_index() == reshape_pattern;
                changed = (patches ? m_patched : m_refused).insert(node.get()).second || changed;
            }
        }
        return changed;
    }

    std::vector<NodePointer> m_nodes;
    TokenLayouts m_layouts;
    Input m_end;
    NodeSet m_asked, m_indifferent, m_patched, m_refused;
    bool m_gave_up = false;
};

/// Gathers what asked nodes read and lets them read that.
class Rewriter {
public:
    Rewriter(ov::Model& model, const AskedNodes& asked, Output rows)
        : m_model(model), m_asked(asked), m_rows(std::move(rows)) {}

    void rewrite() {
        // In the order of the graph: what is gathered first, others are computed from.
        std::vector<std::pair<Output, std::vector<Input>>> borders;
        std::map<Output, size_t> known;
        for (const NodePointer& node : m_asked.nodes())
            for (const Input& input : node->inputs()) {
                if (!m_asked.is_border(input)) continue;
                const Output source = input.get_source_output();
                const auto [at, fresh] = known.emplace(source, borders.size());
                if (fresh) borders.push_back({source, {}});
                borders[at->second].second.push_back(input);
            }
        sort_by_graph(borders);
        for (const auto& [source, readers] : borders)
            if (!can_repeat(source)) gather(source);
        for (auto& [source, readers] : borders)
            for (Input& reader : readers) reader.replace_source_output(repeated(source));
        for (const NodePointer& node : m_asked.nodes()) {
            if (!m_asked.contains(node.get())) continue;
            if (m_asked.needing_patterns().count(node.get()) != 0) set_pattern(*node);
            if (is_paged_attention(*node)) use_asked_tables(node);
        }
    }

private:
    template <class Borders>
    void sort_by_graph(Borders& borders) const {
        std::unordered_map<const ov::Node*, size_t> places;
        for (const NodePointer& node : m_asked.nodes()) places.emplace(node.get(), places.size());
        std::stable_sort(borders.begin(), borders.end(), [&](const auto& a, const auto& b) {
            return places.at(a.first.get_node()) < places.at(b.first.get_node());
        });
    }

    /// Norms and the like cost less than what it costs to have them apart from what follows them.
    bool is_cheap(const ov::Node& node) const {
        if (ov::is_type<Parameter>(&node) || ov::is_type<ov::op::v0::MatMul>(&node) ||
            is_paged_attention(node) || node.get_output_size() != 1)
            return false;
        if (ov::is_type<ov::op::util::GatherBase>(&node) && !layout(node.input_value(0)).is_rows())
            return false;  // an embedding
        for (const Output& source : node.input_values())
            if (layout(source).kind == TokenValue::Kind::SHAPE) return false;
        return true;
    }

    const TokenValue& layout(const Output& output) const { return m_asked.layouts().of(output); }

    /// Whether the value's asked rows follow by a few cheap operations from rows that are gathered.
    bool can_repeat(const Output& output, size_t depth = 0) const {
        if (m_gathered.count(output) != 0) return true;
        const ov::Node& node = *output.get_node();
        if (depth == max_cheap_operations || !layout(output).is_rows() || !is_cheap(node))
            return false;
        const ov::OutputVector sources = node.input_values();
        return std::all_of(sources.begin(), sources.end(), [&](const Output& source) {
            return !layout(source).is_rows() || can_repeat(source, depth + 1);
        });
    }

    Output repeated(const Output& output) {
        const auto known = m_gathered.find(output);
        if (known != m_gathered.end()) return known->second;
        ov::OutputVector inputs = output.get_node()->input_values();
        for (Output& input : inputs)
            if (layout(input).is_rows()) input = repeated(input);
        const NodePointer copy = output.get_node()->clone_with_new_inputs(inputs);
        copy->set_friendly_name(output.get_node()->get_friendly_name() + ".asked");
        return m_gathered[output] = copy->output(output.get_index());
    }

    Output gather(const Output& output) {
        const auto axis = int64_t(layout(output).axis());
        const auto gather = std::make_shared<ov::op::v8::Gather>(
            output, m_rows, Constant::create(ov::element::i64, {}, {axis}));
        gather->set_friendly_name(output.get_node()->get_friendly_name() + ".asked");
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

    void use_asked_tables(const NodePointer& node) {
        if (const auto native = ov::as_type_ptr<PagedAttention>(node)) {
            PagedAttention::Attributes attributes = native->attributes();
            attributes.asked_rows = true;
            native->set_attributes(std::move(attributes));
            return;
        }
        // It writes none, but wants as many keys and values as queries.
        for (const size_t input : {stock_key, stock_value}) {
            const Output source = node->input_value(input);
            node->input(input).replace_source_output(
                m_gathered.count(source) != 0 ? m_gathered.at(source) : gather(source));
        }
        for (const auto& [input, name] :
             {std::pair(stock_past_lens, ports::asked_past_lens),
              std::pair(stock_subsequence_begins, ports::asked_subsequence_begins),
              std::pair(stock_block_indices, ports::asked_block_indices),
              std::pair(stock_block_indices_begins, ports::asked_block_indices_begins)})
            node->input(input).replace_source_output(table(name));
    }

    Output table(const std::string& name) {
        auto& known = m_tables[name];
        if (!known) {
            known = std::make_shared<Parameter>(ov::element::i32, ov::PartialShape{-1});
            known->set_friendly_name(name);
            known->get_output_tensor(0).set_names({name});
            m_model.add_parameters({known});
        }
        return known;
    }

    ov::Model& m_model;
    const AskedNodes& m_asked;
    Output m_rows;
    std::map<Output, Output> m_gathered;  ///< the asked rows of a value
    std::map<std::string, std::shared_ptr<Parameter>> m_tables;
};

/// Multiply-adds of a token with a constant matrix; 0 for what is no such product.
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

FastPrefillReport report_of(const AskedNodes& asked) {
    FastPrefillReport report;
    double all = 0, skipped = 0;
    for (const NodePointer& node : asked.nodes()) {
        const double work = work_of(*node, asked.layouts());
        all += work;
        report.num_layers += asked.ends_asked(*node);
        if (!asked.contains(node.get())) continue;
        skipped += work;
        report.num_attentions += is_paged_attention(*node);
        report.num_native_attentions += ov::is_type<PagedAttention>(node);
    }
    report.work_skipped = all > 0 ? skipped / all : 0;
    report.why = asked.obstacles();
    return report;
}

std::shared_ptr<Parameter> add_asked_rows(ov::Model& model) {
    const auto rows = std::make_shared<Parameter>(ov::element::i64, ov::PartialShape{-1});
    rows->set_friendly_name(ports::asked_rows);
    rows->get_output_tensor(0).set_names({ports::asked_rows});
    model.add_parameters({rows});
    return rows;
}

}  // namespace

FastPrefillReport skip_unread_rows(const std::shared_ptr<ov::Model>& model,
                                   const FastPrefillOptions& options) {
    for (size_t i = 0; i < max_searches && LengthFolder().fold(*model); ++i)
        model->validate_nodes_and_infer_types();
    replace_slice_assigns(model);
    Input end = gathered_logits(*model);
    const AskedNodes asked(*model, end);
    FastPrefillReport report = report_of(asked);
    if (asked.empty()) return report;
    ov::Node& gather = *end.get_node();  // of the logits
    const bool apart = options.observes_attention && report.num_native_attentions > 0;
    Rewriter(*model, asked, apart ? add_asked_rows(*model)->output(0) : gather.input_value(1))
        .rewrite();
    if (!apart) gather.output(0).replace(gather.input_value(0));
    model->validate_nodes_and_infer_types();
    return report;
}

}  // namespace pagewheel
