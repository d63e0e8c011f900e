#include "graph/passes.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "model/port_names.hpp"
#include "openvino/op/parameter.hpp"

namespace pagewheel {
namespace {

/// The graph of groups, in which edges are contracted one by one.
class Groups {
public:
    Groups(size_t count, const std::vector<GraphEdge>& edges)
        : m_parents(count), m_successors(count), m_seen(count, 0) {
        std::iota(m_parents.begin(), m_parents.end(), size_t(0));
        for (const GraphEdge& edge : edges) m_successors[edge.from].push_back(edge.to);
    }

    size_t of(size_t node) {
        while (m_parents[node] != node) node = m_parents[node] = m_parents[m_parents[node]];
        return node;
    }

    /// Contracts an edge, unless another path leads from its one end to the other: that would
    /// become a cycle. Returns whether it did.
    bool join(const GraphEdge& edge) {
        const size_t from = of(edge.from), to = of(edge.to);
        if (from == to || has_detour(from, to)) return false;
        m_parents[to] = from;
        auto& successors = m_successors[from];
        successors.insert(successors.end(), m_successors[to].begin(), m_successors[to].end());
        m_successors[to] = {};
        return true;
    }

private:
    /// Whether a path leads from group to group that is more than an edge.
    bool has_detour(size_t from, size_t to) {
        ++m_search;
        m_open.assign(1, from);
        while (!m_open.empty()) {
            const size_t group = m_open.back();
            m_open.pop_back();
            for (const size_t successor : m_successors[group]) {
                const size_t next = of(successor);
                if (next == to && group != from) return true;
                if (next == to || next == from || m_seen[next] == m_search) continue;
                m_seen[next] = m_search;
                m_open.push_back(next);
            }
        }
        return false;
    }

    std::vector<size_t> m_parents;  // towards the node that stands for the group
    std::vector<std::vector<size_t>> m_successors;
    std::vector<size_t> m_seen, m_open;
    size_t m_search = 0;
};

using NodePointer = std::shared_ptr<ov::Node>;

std::shared_ptr<NativeOp> as_native(const NodePointer& node) {
    return std::dynamic_pointer_cast<NativeOp>(node);
}

/// Whether a region can hold the node: it must tell the shapes of its outputs by their rows.
bool can_join(const NativeOp& op) {
    for (size_t i = 0; i < op.num_row_inputs(); ++i)
        if (row_width(op.get_input_partial_shape(i)) == 0 ||
            op.get_input_element_type(i) != ov::element::f32)
            return false;
    for (const auto& output : op.outputs()) {
        const ov::PartialShape& shape = output.get_partial_shape();
        if (row_width(shape) == 0 ||
            std::count_if(shape.begin(), shape.end(),
                          [](const ov::Dimension& d) { return d.is_dynamic(); }) > 1)
            return false;
    }
    return true;
}

/// What comes out of an operation that can join, if the input reads that as the same rows; else
/// the input's own source.
ov::Output<ov::Node> source_of_rows(const ov::Input<ov::Node>& input) {
    ov::Output<ov::Node> source = input.get_source_output();
    while (is_view(*source.get_node())) source = source.get_node()->input_value(0);
    const auto native = as_native(source.get_node_shared_ptr());
    const bool same = native && can_join(*native) &&
                      row_width(source.get_partial_shape()) == row_width(input.get_partial_shape());
    return same ? source : input.get_source_output();
}

using Members = std::vector<std::shared_ptr<NativeOp>>;

/// A model's nodes and which of them belong together.
class Grouping {
public:
    explicit Grouping(const ov::Model& model) : m_nodes(model.get_ordered_ops()) {
        for (size_t i = 0; i < m_nodes.size(); ++i) m_numbers[m_nodes[i].get()] = i;
        std::vector<GraphEdge> edges, joins;
        for (size_t i = 0; i < m_nodes.size(); ++i) {
            const auto native = as_native(m_nodes[i]);
            const bool joins_others = native && can_join(*native);
            const size_t num_rows = joins_others ? native->num_row_inputs() : 0;
            for (const ov::Input<ov::Node>& input : m_nodes[i]->inputs()) {
                const ov::Output<ov::Node> source = input.get_index() < num_rows
                                                        ? source_of_rows(input)
                                                        : input.get_source_output();
                const GraphEdge edge{m_numbers.at(source.get_node()), i};
                edges.push_back(edge);
                const auto before = input.get_index() < num_rows
                                        ? as_native(source.get_node_shared_ptr())
                                        : nullptr;
                if (before && can_join(*before)) joins.push_back(edge);
            }
        }
        m_groups = find_convex_groups(m_nodes.size(), edges, joins);
    }

    /// Groups of two and more, each in the model's order.
    std::vector<Members> groups() const {
        std::map<size_t, Members> members;
        for (size_t i = 0; i < m_nodes.size(); ++i)
            if (const auto native = as_native(m_nodes[i])) members[m_groups[i]].push_back(native);
        std::vector<Members> groups;
        for (auto& [number, group] : members)
            if (group.size() > 1) groups.push_back(std::move(group));
        return groups;
    }

private:
    std::vector<NodePointer> m_nodes;
    std::unordered_map<const ov::Node*, size_t> m_numbers;
    std::vector<size_t> m_groups;
};

/// The operation as a region keeps it: not tied to the graph, whose constants would stay with it.
std::shared_ptr<const NativeOp> detached(const NativeOp& op) {
    ov::OutputVector inputs;
    for (const auto& input : op.input_values())
        inputs.push_back(std::make_shared<ov::op::v0::Parameter>(input.get_element_type(),
                                                                 input.get_partial_shape()));
    return as_native(op.clone_with_new_inputs(inputs));
}

bool is_cache(const ov::Node& node) {
    const auto* parameter = ov::as_type<const ov::op::v0::Parameter>(&node);
    if (!parameter || parameter->get_element_type() != ov::element::u8) return false;
    const ov::PartialShape& shape = parameter->get_partial_shape();
    return shape.rank().is_static() && shape.size() > 1 && shape[0].is_dynamic() &&
           std::all_of(shape.begin() + 1, shape.end(),
                       [](const ov::Dimension& d) { return d.is_static(); });
}

/// The caches that nothing but future regions reads, and the input that has their addresses.
class FoundCaches {
public:
    explicit FoundCaches(const std::vector<Members>& groups) {
        std::set<const ov::Node*> members;
        for (const Members& group : groups)
            for (const auto& member : group) members.insert(member.get());
        for (const Members& group : groups)
            for (const auto& member : group)
                for (size_t i = member->num_row_inputs(); i < member->get_input_size(); ++i)
                    add(member->get_input_node_shared_ptr(i), members);
        const auto count = int64_t(m_inputs.size());
        if (count == 0) return;
        m_directory = std::make_shared<ov::op::v0::Parameter>(
            ov::element::u8, ov::PartialShape{count, cache_entry_bytes});
        m_directory->set_friendly_name(ports::cache_directory);
        m_directory->output(0).set_names({ports::cache_directory});
    }

    /// The number of the cache that `output` is.
    std::optional<size_t> number(const ov::Output<ov::Node>& output) const {
        const auto found = m_numbers.find(output.get_node());
        if (found == m_numbers.end()) return {};
        return found->second;
    }
    const std::vector<CacheInput>& inputs() const { return m_inputs; }
    ov::Output<ov::Node> directory() const { return m_directory; }

    /// When no region needs the parameters any more.
    void take_out(ov::Model& model) const {
        if (m_directory) model.add_parameters({m_directory});
        for (const auto& parameter : m_parameters) model.remove_parameter(parameter);
    }

private:
    void add(const NodePointer& node, const std::set<const ov::Node*>& members) {
        if (m_numbers.count(node.get()) != 0 || !is_cache(*node)) return;
        for (const ov::Input<ov::Node>& reader : node->output(0).get_target_inputs())
            if (members.count(reader.get_node()) == 0) return;
        const auto parameter = ov::as_type_ptr<ov::op::v0::Parameter>(node);
        const ov::PartialShape& shape = parameter->get_partial_shape();
        ov::Shape block;
        for (size_t d = 1; d < shape.size(); ++d) block.push_back(size_t(shape[d].get_length()));
        m_numbers[node.get()] = m_inputs.size();
        m_inputs.push_back({node->get_friendly_name(), parameter->get_element_type(), block});
        m_parameters.push_back(parameter);
    }

    std::map<const ov::Node*, size_t> m_numbers;
    std::vector<CacheInput> m_inputs;
    ov::ParameterVector m_parameters;
    std::shared_ptr<ov::op::v0::Parameter> m_directory;
};

/// Makes one region and puts it into the graph.
class RegionBuilder {
public:
    RegionBuilder(const Members& members, const FoundCaches& caches)
        : m_members(members), m_caches(caches) {
        for (const auto& member : members) m_is_member[member.get()] = true;
    }

    std::shared_ptr<const RegionPlan> replace() {
        m_region.name = concat("region of ", m_members.size(), " from ",
                               m_members.front()->get_friendly_name());
        for (const auto& member : m_members) add_step(*member);
        ov::OutputVector outputs;
        for (const auto& member : m_members)
            for (const auto& output : member->outputs())
                if (is_read_outside(output)) outputs.push_back(output);
        for (const auto& output : outputs) {
            const size_t value = m_values.at(output);
            m_region.values[value].output = m_region.outputs.size();
            m_region.outputs.push_back({value, output.get_partial_shape()});
        }
        const auto plan = std::make_shared<const RegionPlan>(std::move(m_region));
        const auto region = std::make_shared<NativeRegion>(m_inputs, plan);
        region->set_friendly_name(plan->description().name);
        for (size_t i = 0; i < outputs.size(); ++i) outputs[i].replace(region->output(i));
        return plan;
    }

private:
    size_t input_number(const ov::Output<ov::Node>& output) {
        const auto [at, fresh] = m_input_numbers.emplace(output, m_inputs.size());
        if (fresh) m_inputs.push_back(output);
        return at->second;
    }

    bool is_inside(const ov::Output<ov::Node>& output) const {
        return m_is_member.count(output.get_node()) != 0;
    }

    /// The value that a member's input reads.
    size_t value_of(const ov::Input<ov::Node>& input) {
        const ov::Output<ov::Node> inner = source_of_rows(input);
        if (is_inside(inner)) return m_values.at(inner);
        const ov::Output<ov::Node> outer = input.get_source_output();
        const auto [at, fresh] = m_values.emplace(outer, m_region.values.size());
        if (fresh) {
            RegionValue value;
            value.width = row_width(outer.get_partial_shape());
            value.input = input_number(outer);
            value.rows = {value.input, value.width};
            m_region.values.push_back(value);
        }
        return at->second;
    }

    RegionTensor tensor_of(const ov::Output<ov::Node>& output) {
        const std::optional<size_t> cache = m_caches.number(output);
        if (!cache) return {false, input_number(output)};
        if (m_region.caches.empty()) {
            m_region.caches = m_caches.inputs();
            m_region.directory = input_number(m_caches.directory());
        }
        return {true, *cache};
    }

    void add_step(NativeOp& member) {
        RegionStep step;
        step.op = detached(member);
        step.name = member.get_friendly_name();
        for (const ov::Input<ov::Node>& input : member.inputs())
            if (input.get_index() < member.num_row_inputs())
                step.rows.push_back(value_of(input));
            else
                step.tensors.push_back(tensor_of(input.get_source_output()));
        const size_t counted = member.row_count_input();
        const RowCount rows = counted < member.num_row_inputs()
                                  ? m_region.values[step.rows[counted]].rows
                                  : RowCount{input_number(member.input_value(counted)), 1};
        for (const ov::Output<ov::Node>& output : member.outputs()) {
            step.outputs.push_back(m_region.values.size());
            m_values[output] = m_region.values.size();
            RegionValue value;
            value.width = row_width(output.get_partial_shape());
            value.rows = rows;
            m_region.values.push_back(value);
        }
        m_region.steps.push_back(std::move(step));
    }

    /// Whether anything but members reads the member's output or a view of it.
    bool is_read_outside(const ov::Output<ov::Node>& output) const {
        for (const ov::Input<ov::Node>& reader : output.get_target_inputs()) {
            const ov::Node& node = *reader.get_node();
            if (m_is_member.count(&node) != 0) {
                const auto& member = static_cast<const NativeOp&>(node);
                if (reader.get_index() < member.num_row_inputs() &&
                    is_inside(source_of_rows(reader)))
                    continue;
                return true;
            }
            if (!is_view(node) || reader.get_index() != 0 || is_read_outside(node_output(reader)))
                return true;
        }
        return false;
    }

    static ov::Output<ov::Node> node_output(const ov::Input<ov::Node>& input) {
        return input.get_node()->output(0);
    }

    const Members& m_members;
    const FoundCaches& m_caches;
    std::unordered_map<const ov::Node*, bool> m_is_member;
    RegionDescription m_region;
    ov::OutputVector m_inputs;
    std::map<ov::Output<ov::Node>, size_t> m_input_numbers;
    std::map<ov::Output<ov::Node>, size_t> m_values;  // by what it was in the graph
};

}  // namespace

std::vector<size_t> find_convex_groups(size_t count, const std::vector<GraphEdge>& edges,
                                       const std::vector<GraphEdge>& joins) {
    Groups groups(count, edges);
    // A detour may be taken into the group later, which makes way for the join.
    for (bool changed = true; changed;) {
        changed = false;
        for (const GraphEdge& edge : joins) changed |= groups.join(edge);
    }
    std::vector<size_t> numbers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = groups.of(i);
    return numbers;
}

NativeRegions form_native_regions(const std::shared_ptr<ov::Model>& model) {
    NativeRegions regions;
    std::vector<Members> groups = Grouping(*model).groups();
    if (groups.empty()) return regions;
    const FoundCaches caches(groups);
    for (const Members& members : groups)
        regions.plans.push_back(RegionBuilder(members, caches).replace());
    groups.clear();  // the nodes that read the caches go
    caches.take_out(*model);
    regions.caches = caches.inputs();
    model->validate_nodes_and_infer_types();
    return regions;
}

}  // namespace pagewheel
