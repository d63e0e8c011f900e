#include "graph/compute_at_logits_indices.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/parameter.hpp"
#include "openvino/op/util/gather_base.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using ov::op::v0::Parameter;
using NodePointer = std::shared_ptr<ov::Node>;
using Output = ov::Output<ov::Node>;
using Input = ov::Input<ov::Node>;

/// A norm has seven, one of which two others read.
constexpr size_t max_cheap_operations = 12;

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
            is_paged_attention(node) || node.get_output_size() != 1)
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

}  // namespace

void compute_at_logits_indices(ov::Model& model, const FastPrefillNodes& nodes,
                               const Output& rows) {
    Gathering(model, nodes, rows).rewrite();
}

}  // namespace pagewheel
