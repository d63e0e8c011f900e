#include "graph/passes.hpp"

#include <optional>
#include <set>
#include <vector>

#include "graph/function_patterns.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/concat.hpp"
#include "openvino/op/divide.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/negative.hpp"
#include "openvino/op/power.hpp"
#include "openvino/op/reduce_mean.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/sigmoid.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/sqrt.hpp"
#include "openvino/op/swish.hpp"
#include "openvino/op/transpose.hpp"
#include "ops/quantized_linear.hpp"
#include "ops/routed_experts.hpp"

namespace pagewheel {
namespace {

template <class Node>
bool fuse_norm(const std::shared_ptr<Node>& node, size_t k) {
    if (node->attributes().norm.gamma || !has_one_reader(node->input_value(0))) return false;
    const auto found = find_norm(node->input_value(0), k);
    if (!found) return false;
    auto attributes = node->attributes();
    attributes.norm = found->norm;
    ov::OutputVector inputs = node->input_values();
    inputs[0] = found->x;
    replace_with(node, std::make_shared<Node>(inputs, std::move(attributes)));
    return true;
}

/// The gate and the up projection whose silu(gate) * up `output` is; null gate if it is none.
struct Halves {
    ov::Output<ov::Node> gate, up;
};

Halves find_halves(const ov::Output<ov::Node>& output) {
    const auto product = ov::as_type_ptr<ov::op::v1::Multiply>(output.get_node_shared_ptr());
    if (!product) return {};
    for (const size_t i : {0, 1}) {
        const ov::Output<ov::Node> silu = product->input_value(i);
        const ov::Output<ov::Node> gate = silu_input(silu);
        if (gate.get_node() && has_one_reader(silu)) return {gate, product->input_value(1 - i)};
    }
    return {};
}

/// Whether nothing but the activation reads the projections.
bool are_read_once(const Halves& halves) {
    const bool swish =
        ov::is_type<ov::op::v4::Swish>(halves.gate.get_target_inputs().begin()->get_node());
    return halves.gate.get_target_inputs().size() == (swish ? 1u : 2u) && has_one_reader(halves.up);
}

/// What the output is added to, if that is its only use and a stream of the same shape.
std::shared_ptr<ov::op::v1::Add> residual_sum(const ov::Output<ov::Node>& output,
                                              ov::Output<ov::Node>& residual) {
    const auto add = ov::as_type_ptr<ov::op::v1::Add>(only_reader(output));
    if (!add || add->input_value(0) == add->input_value(1)) return nullptr;
    residual = add->input_value(add->input_value(0) == output ? 1 : 0);
    // A bias has the same last dimension, but fewer others or fixed ones.
    const bool same = residual.get_element_type() == ov::element::f32 &&
                      residual.get_partial_shape() == output.get_partial_shape();
    return same ? add : nullptr;
}

template <class Node>
bool fuse_residual(const std::shared_ptr<Node>& node) {
    if (!node || node->get_output_size() != 1 || node->attributes().residual) return false;
    ov::Output<ov::Node> residual;
    const auto add = residual_sum(node->output(0), residual);
    if (!add) return false;
    auto attributes = node->attributes();
    attributes.residual = true;
    ov::OutputVector inputs = node->input_values();
    inputs.insert(inputs.begin() + long(node->num_row_inputs()), residual);
    const auto fused = std::make_shared<Node>(inputs, attributes);
    fused->set_friendly_name(node->get_friendly_name());
    add->output(0).replace(fused->output(0));
    return true;
}

using ov::op::v1::Multiply;

/// x * sigmoid(gate) before the node, read by nothing else, becomes its own.
bool fuse_gate(const std::shared_ptr<QuantizedLinear>& node) {
    const ov::Output<ov::Node> product = node->input_value(0);
    auto attributes = node->attributes();
    if (attributes.gated || attributes.norm.gamma || !has_one_reader(product)) return false;
    const auto found = split_operands<Multiply>(product, [&](const auto& value) {
        const auto sigmoid = as<ov::op::v0::Sigmoid>(value);
        return sigmoid ? std::optional(sigmoid->input_value(0)) : std::nullopt;
    });
    if (!found) return false;
    const auto& [gate, x] = *found;
    for (const auto& each : {gate, x})
        if (each.get_partial_shape() != product.get_partial_shape() ||
            each.get_element_type() != ov::element::f32)
            return false;
    attributes.gated = true;
    ov::OutputVector inputs = node->input_values();
    inputs[0] = x;
    inputs.insert(inputs.begin() + 1, gate);
    replace_with(node, std::make_shared<QuantizedLinear>(inputs, std::move(attributes)));
    return true;
}

/// What becomes of the heads that a projection gives, and what reads them then.
struct FoundHeads {
    QuantizedLinear::Heads heads;
    ov::Output<ov::Node> cos, sin;   // where they are rotated
    std::shared_ptr<ov::Node> rows;  // [tokens, heads * size]
};

/// The other factor of `output`, if that is a product with `factor`.
ov::Output<ov::Node> other_factor(const ov::Output<ov::Node>& output,
                                  const ov::Output<ov::Node>& factor) {
    const auto product = ov::as_type_ptr<Multiply>(output.get_node_shared_ptr());
    if (!product) return {};
    for (const size_t i : {0, 1})
        if (product->input_value(i) == factor) return product->input_value(1 - i);
    return {};
}

ov::Output<ov::Node> negated(const ov::Output<ov::Node>& output) {
    const auto node = output.get_node_shared_ptr();
    if (ov::is_type<ov::op::v0::Negative>(node)) return node->input_value(0);
    if (!ov::is_type<Multiply>(node)) return {};
    for (const size_t i : {0, 1})
        if (scalar(node->input_value(i)) == -1.0f) return node->input_value(1 - i);
    return {};
}

/// Whether `output` is elements [begin, end) of the last dimension of x, which has `size`.
bool is_slice(const ov::Output<ov::Node>& output, const ov::Output<ov::Node>& x, int64_t begin,
              int64_t end, int64_t size) {
    if (!output.get_node()) return false;
    const auto slice = ov::as_type_ptr<ov::op::v8::Slice>(output.get_node_shared_ptr());
    if (!slice || slice->input_value(0) != x || slice->get_input_size() != 5) return false;
    std::vector<int64_t> values;
    for (size_t i = 1; i < 5; ++i) {
        const auto constant = constant_under(slice->input_value(i));
        if (!constant || ov::shape_size(constant->get_shape()) != 1) return false;
        values.push_back(constant->cast_vector<int64_t>()[0]);
    }
    return values[0] == begin && std::min(values[1], size) == end && values[2] == 1 &&
           (values[3] == 3 || values[3] == -1);
}

/// Whether the node puts two parts of the last of four dimensions one behind the other.
bool joins_parts(const std::shared_ptr<ov::Node>& node) {
    const auto concat = ov::as_type_ptr<ov::op::v0::Concat>(node);
    return concat && concat->get_input_size() == 2 &&
           (concat->get_axis() == 3 || concat->get_axis() == -1);
}

/// Whether `output` is (-second half, first half) of x.
bool is_rotated_half(const ov::Output<ov::Node>& output, const ov::Output<ov::Node>& x,
                     int64_t size) {
    const auto node = output.get_node_shared_ptr();
    return joins_parts(node) && is_slice(negated(node->input_value(0)), x, size / 2, size, size) &&
           is_slice(node->input_value(1), x, 0, size / 2, size);
}

/// Cosines or sines of each token, alike for all heads: f32 [tokens, 1, 1, size].
bool are_angles(const ov::Output<ov::Node>& output, size_t size) {
    if (!output.get_node() || output.get_element_type() != ov::element::f32) return false;
    const ov::PartialShape shape = output.get_partial_shape();
    return shape.rank().is_static() && shape.size() == 4 && shape[1] == 1 && shape[2] == 1 &&
           shape[3] == int64_t(size);
}

/// x * cos + rotate_half(x) * sin, in either order.
bool find_angles(const std::shared_ptr<ov::Node>& sum, const ov::Output<ov::Node>& x, size_t size,
                 FoundHeads& found) {
    if (!ov::is_type<ov::op::v1::Add>(sum)) return false;
    for (const size_t i : {0, 1}) {
        found.cos = other_factor(sum->input_value(i), x);
        const auto rotated = ov::as_type_ptr<Multiply>(sum->get_input_node_shared_ptr(1 - i));
        if (!rotated || !are_angles(found.cos, size)) continue;
        for (const size_t j : {0, 1}) {
            found.sin = rotated->input_value(j);
            if (are_angles(found.sin, size) &&
                is_rotated_half(rotated->input_value(1 - j), x, int64_t(size)))
                return true;
        }
    }
    return false;
}

/// x [tokens, heads, 1, size], all of it rotated and read as nothing else; null if it is not.
ov::Output<ov::Node> find_all_rotated(const ov::Output<ov::Node>& x, FoundHeads& found) {
    const size_t size = row_width(x.get_partial_shape());
    if (size % 2 != 0 || x.get_target_inputs().size() != 3) return {};
    for (const ov::Input<ov::Node>& reader : x.get_target_inputs()) {
        const auto sum = only_reader(reader.get_node()->output(0));
        if (!sum || !find_angles(sum, x, size, found)) continue;
        found.heads.rotated = size;
        return sum->output(0);
    }
    return {};
}

/// The same of the first values of x, with the others behind them again.
ov::Output<ov::Node> find_part_rotated(const ov::Output<ov::Node>& x, FoundHeads& found) {
    if (x.get_target_inputs().size() != 2) return {};
    const auto size = int64_t(found.heads.size);
    for (const ov::Input<ov::Node>& reader : x.get_target_inputs()) {
        const ov::Output<ov::Node> first = reader.get_node()->output(0);
        const auto end = int64_t(row_width(first.get_partial_shape()));
        if (!is_slice(first, x, 0, end, size)) continue;
        const ov::Output<ov::Node> rotated = find_all_rotated(first, found);
        const auto whole = rotated.get_node() ? only_reader(rotated) : nullptr;
        if (joins_parts(whole) && whole->input_value(0) == rotated &&
            is_slice(whole->input_value(1), x, end, size, size) &&
            has_one_reader(whole->input_value(1)))
            return whole->output(0);
    }
    return {};
}

/// The norm of each of the heads, if nothing else reads them; else the heads.
ov::Output<ov::Node> find_normed(const ov::Output<ov::Node>& heads, FoundHeads& found) {
    std::set<ov::Node*> readers;
    for (const auto& input : heads.get_target_inputs()) readers.insert(input.get_node());
    for (ov::Node* reader : readers) {
        const auto scaled = only_reader(reader->output(0));
        const auto norm = scaled ? find_norm(scaled->output(0), found.heads.size) : std::nullopt;
        // The other reader is the square.
        if (!norm || norm->x != heads || readers.size() != 2) continue;
        found.heads.norm = norm->norm;
        return scaled->output(0);
    }
    return heads;
}

/// [tokens, 1, heads * size] -> [tokens, 1, heads, size], normed -> [tokens, heads, 1, size],
/// rotated -> [tokens, heads * size].
std::optional<FoundHeads> find_heads(const ov::Output<ov::Node>& projection) {
    const ov::PartialShape given = projection.get_partial_shape();
    const auto heads = only_reader(projection);
    if (!ov::is_type<ov::op::v1::Reshape>(heads) || given.size() != 3 || given[1] != 1) return {};
    const ov::PartialShape shape = heads->get_output_partial_shape(0);
    if (shape.size() != 4 || shape[1] != 1 || shape[2].is_dynamic() || shape[3].is_dynamic() ||
        shape[2].get_length() * shape[3].get_length() != given[2].get_length())
        return {};
    FoundHeads found;
    found.heads.size = size_t(shape[3].get_length());
    const auto swapped = only_reader(find_normed(heads->output(0), found));
    if (!swaps_middle(swapped)) return {};
    ov::Output<ov::Node> last = find_all_rotated(swapped->output(0), found);
    if (!last.get_node()) last = find_part_rotated(swapped->output(0), found);
    if (!last.get_node()) last = swapped->output(0);
    const auto back = only_reader(last);
    found.rows = swaps_middle(back) ? only_reader(back->output(0)) : nullptr;
    if (!ov::is_type<ov::op::v1::Reshape>(found.rows)) return {};
    const ov::PartialShape rows = found.rows->get_output_partial_shape(0);
    const bool changes = found.heads.norm.gamma || last != swapped->output(0);
    if (!changes || rows.size() != 2 || rows[1] != given[2]) return {};
    return found;
}

/// The node with what becomes of the heads of some outputs, which `rotated` are by its angles.
void fuse(const std::shared_ptr<QuantizedLinear>& linear,
          const std::vector<std::optional<FoundHeads>>& found, const FoundHeads* rotated) {
    QuantizedLinear::Attributes attributes = linear->attributes();
    for (const auto& each : found)
        attributes.heads.push_back(each ? each->heads : QuantizedLinear::Heads());
    ov::OutputVector inputs = linear->input_values();
    if (rotated) inputs.insert(inputs.end(), {rotated->cos, rotated->sin});
    const auto fused = std::make_shared<QuantizedLinear>(inputs, std::move(attributes));
    for (size_t i = 0; i < found.size(); ++i) {
        if (!found[i]) continue;
        const auto width = int64_t(fused->attributes().weights[i]->n());
        found[i]->rows->output(0).replace(reshaped_to(fused->output(i), {-1, width}));
    }
    replace_with(linear, fused);
}

}  // namespace

size_t fuse_norms(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        if (const auto linear = ov::as_type_ptr<QuantizedLinear>(node))
            fused += fuse_norm(linear, linear->attributes().weights[0]->k());
        const auto experts = ov::as_type_ptr<RoutedExperts>(node);
        if (experts && experts->attributes().router)
            fused += fuse_norm(experts, experts->attributes().router->k);
    }
    return fused;
}

size_t fuse_gated_mlps(const std::shared_ptr<ov::Model>& model) {
    return count_each<QuantizedLinear>(*model, [](const auto& down) {
        if (down->get_output_size() != 1 || down->attributes().norm.gamma ||
            down->attributes().residual || !has_one_reader(down->input_value(0)))
            return false;
        const Halves halves = find_halves(down->input_value(0));
        if (!halves.gate.get_node() || halves.gate.get_node() != halves.up.get_node()) return false;
        const auto both = ov::as_type_ptr<QuantizedLinear>(halves.gate.get_node_shared_ptr());
        if (!both || both->get_output_size() != 2 || both->attributes().residual ||
            halves.gate.get_index() == halves.up.get_index() || !are_read_once(halves))
            return false;
        GatedMlp::Attributes attributes;
        attributes.gate = both->attributes().weights[halves.gate.get_index()];
        attributes.up = both->attributes().weights[halves.up.get_index()];
        attributes.down = down->attributes().weights[0];
        if (attributes.gate->is_bf16() != attributes.down->is_bf16()) return false;
        attributes.norm = both->attributes().norm;
        attributes.activations = both->attributes().activations;
        const auto mlp =
            std::make_shared<GatedMlp>(ov::OutputVector{both->input_value(0)}, attributes);
        replace_with(down, mlp);
        return true;
    });
}

size_t fuse_residuals(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops())
        fused += fuse_residual(ov::as_type_ptr<QuantizedLinear>(node)) ||
                 fuse_residual(ov::as_type_ptr<GatedMlp>(node)) ||
                 fuse_residual(ov::as_type_ptr<RoutedExperts>(node));
    return fused;
}

size_t fuse_heads(const std::shared_ptr<ov::Model>& model) {
    return count_each<QuantizedLinear>(*model, [](const auto& linear) {
        if (linear->attributes().residual) return false;
        std::vector<std::optional<FoundHeads>> found;
        const FoundHeads* rotated = nullptr;  // the first that is
        for (size_t i = 0; i < linear->get_output_size(); ++i)
            found.push_back(find_heads(linear->output(i)));
        bool any = false;
        for (auto& each : found) {
            if (each && each->heads.rotated > 0) {
                if (!rotated) rotated = &*each;
                if (each->cos != rotated->cos || each->sin != rotated->sin ||
                    each->heads.rotated != rotated->heads.rotated)
                    each.reset();
            }
            any = any || each;
        }
        if (any) fuse(linear, found, rotated);
        return any;
    });
}

size_t fuse_gates(const std::shared_ptr<ov::Model>& model) {
    return count_each<QuantizedLinear>(*model, fuse_gate);
}

}  // namespace pagewheel
