#include "graph/passes.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "graph/node_queries.hpp"
#include "graph/token_layout.hpp"
#include "graph/token_rules.hpp"
#include "model/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/multiply.hpp"
#include "ops/gather_rows.hpp"

namespace pagewheel {
namespace {

bool is_outer_product(const ov::op::v0::MatMul& matmul) {
    if (matmul.get_transpose_a() || matmul.get_transpose_b() ||
        matmul.get_output_element_type(0) != ov::element::f32)
        return false;
    const ov::PartialShape& a = matmul.get_input_partial_shape(0);
    const ov::PartialShape& b = matmul.get_input_partial_shape(1);
    return a.rank().is_static() && b.rank().is_static() && a.size() > 1 && b.size() > 1 &&
           a[a.size() - 1] == 1 && b[b.size() - 2] == 1;
}

/// f32 [rows, 1, ..., width]
bool has_plain_rows(const ov::Output<ov::Node>& output) {
    const ov::PartialShape& shape = output.get_partial_shape();
    return output.get_element_type() == ov::element::f32 && shape.rank().is_static() &&
           shape.size() > 1 && shape[shape.size() - 1].is_static() &&
           std::all_of(shape.begin() + 1, shape.end() - 1,
                       [](const ov::Dimension& dimension) { return dimension == 1; });
}

/// Alone, a node of pagewheel's costs the plugin more than its own Gather does.
bool feeds_native_operation(const ov::Output<ov::Node>& rows) {
    const auto readers = rows.get_target_inputs();
    return std::any_of(readers.begin(), readers.end(), [](const ov::Input<ov::Node>& reader) {
        const auto* native = dynamic_cast<const NativeOp*>(reader.get_node());
        return native && reader.get_index() < native->num_row_inputs();
    });
}

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
        const bool narrow = node->get_output_element_type(0) != ov::element::i64;
        std::vector<int64_t> lengths;
        for (const Extent& extent : extents) {
            if (narrow && extent.size > std::numeric_limits<int32_t>::max()) return;
            lengths.push_back(extent.size);
        }
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
        if (size && *size <= max_elements && !has_state(*node) &&
            node->constant_fold(results, node->input_values()))
            put(node, results[0].get_node_shared_ptr());
    }

    void put(const NodePointer& node, const NodePointer& constant) {
        replace_with(node, constant);
        m_folded.insert(constant.get());
    }

    std::unordered_set<const ov::Node*> m_folded;
};

}  // namespace

size_t share_constants(const std::shared_ptr<ov::Model>& model) {
    using ov::op::v0::Constant;
    constexpr size_t largest = 16;
    std::map<std::tuple<std::string, ov::Shape, std::string>, std::shared_ptr<Constant>> first;
    size_t unused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto constant = ov::as_type_ptr<Constant>(node);
        if (!constant || ov::shape_size(constant->get_shape()) > largest) continue;
        const ov::element::Type type = constant->get_element_type();
        if (type != ov::element::f32 && type != ov::element::i32 && type != ov::element::i64)
            continue;
        std::string bytes(static_cast<const char*>(constant->get_data_ptr()),
                          constant->get_byte_size());
        const auto [place, is_new] = first.try_emplace(
            {type.get_type_name(), constant->get_shape(), std::move(bytes)}, constant);
        if (is_new) continue;
        for (ov::Input<ov::Node> reader : constant->output(0).get_target_inputs())
            reader.replace_source_output(place->second);
        ++unused;
    }
    return unused;
}

size_t multiply_outer_products(const std::shared_ptr<ov::Model>& model) {
    return count_each<ov::op::v0::MatMul>(*model, [](const auto& matmul) {
        if (!is_outer_product(*matmul)) return false;
        replace_with(matmul, std::make_shared<ov::op::v1::Multiply>(matmul->input_value(0),
                                                                    matmul->input_value(1)));
        return true;
    });
}

size_t use_gather_rows(const std::shared_ptr<ov::Model>& model) {
    return count_each<ov::op::v8::Gather>(*model, [](const auto& node) {
        if (!has_plain_rows(node->input_value(0)) || scalar(node->input_value(2)) != 0.0f ||
            !feeds_native_operation(node->output(0)))
            return false;
        const std::string& rows = node->get_input_node_ptr(1)->get_friendly_name();
        if (rows != ports::logits_indices && rows != ports::sampled_tokens_indices) return false;
        replace_with(node, std::make_shared<GatherRows>(
                               ov::OutputVector{node->input_value(0), node->input_value(1)}));
        return true;
    });
}

void fold_lengths(ov::Model& model) {
    for (size_t i = 0; i < max_rounds && LengthFolder().fold(model); ++i)
        model.validate_nodes_and_infer_types();
}

}  // namespace pagewheel
