#include "graph/fold_lengths.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/node_queries.hpp"
#include "graph/token_layout.hpp"
#include "openvino/op/constant.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using NodePointer = std::shared_ptr<ov::Node>;
using Output = ov::Output<ov::Node>;

/// What is known of a graph once lengths are constants may make others known. Decoders need two or
/// three rounds.
constexpr size_t max_rounds = 8;

/// One round.
class LengthFolder {
public:
    /// Returns whether there was anything.
    bool fold(const ov::Model& model) {
        const TokenLayouts layouts(model);
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

    std::unordered_set<const ov::Node*> m_folded;
};

}  // namespace

void fold_lengths(ov::Model& model) {
    for (size_t i = 0; i < max_rounds && LengthFolder().fold(model); ++i)
        model.validate_nodes_and_infer_types();
}

}  // namespace pagewheel
