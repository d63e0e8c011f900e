// Which operations of a decoder only lead to logits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/token_layout.hpp"
#include "openvino/core/model.hpp"

namespace pagewheel {

/// The nodes that can be computed for logits indices alone: token by token, and read by nothing but
/// each other and the gathering of the logits. Does not change the model.
class FastPrefillNodes {
public:
    /// `end` is the input that reads rows for the logits.
    FastPrefillNodes(const ov::Model& model, const ov::Input<ov::Node>& end);

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
    bool is_border(const ov::Input<ov::Node>& input) const;

    /// Whether the node is attention whose output is read for logits indices alone.
    bool is_attention_at_logits_indices(ov::Node& node) const;

    /// What keeps more nodes from being among them, one sentence each.
    std::vector<std::string> obstacles() const;

private:
    using NodeSet = std::unordered_set<const ov::Node*>;

    bool is_other_output(ov::Node& node) const;
    bool is_unknown(const ov::Output<ov::Node>& output) const;
    bool begins_unknown(ov::Node& node) const;
    bool is_computed_by_token(ov::Node& node) const;
    bool is_read_at_logits_indices_alone(ov::Node& node) const;
    bool ignores_row_count(const ov::Input<ov::Node>& reader) const;
    bool ignores_row_count(ov::Node& node) const;
    void search();
    NodeSet counting_logits_indices() const;
    bool refuse_what_cannot_be_read();

    std::vector<std::shared_ptr<ov::Node>> m_nodes;
    TokenLayouts m_layouts;
    ov::Input<ov::Node> m_end;
    NodeSet m_nodes_at_indices;
    NodeSet m_no_row_counts;  // lengths whose readers do not care how many rows there are
    NodeSet m_patched;        // see needs_pattern()
    NodeSet m_refused;        // nodes that would read what fast prefill nodes cannot
    bool m_gave_up = false;
};

}  // namespace pagewheel
