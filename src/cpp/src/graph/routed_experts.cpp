#include "graph/passes.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "graph/compressed_weights.hpp"
#include "graph/expert_routing.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/clamp.hpp"
#include "openvino/op/gelu.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/minimum.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reduce_sum.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/shape_of.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/swish.hpp"
#include "openvino/op/tile.hpp"
#include "ops/routed_experts.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using Value = ov::Output<ov::Node>;
using kernels::GateFunction;

/// A product of each expert's rows with its matrix, and what is added.
struct StackedLinear {
    std::shared_ptr<CompressedWeights> weights;
    std::vector<float> bias;  // [experts, n] or empty
    Value input;              // [experts, rows, k]
};

std::optional<StackedLinear> find_stacked_product(const Value& value) {
    const auto matmul = as<ov::op::v0::MatMul>(value);
    if (!matmul || matmul->get_transpose_a() || !matmul->get_transpose_b()) return {};
    std::string reason;
    std::shared_ptr<CompressedWeights> weights =
        find_compressed_weights(matmul->input_value(1), reason);
    if (!weights || weights->experts == 0) return {};
    // A matrix begins with a whole byte.
    if (weights->values->get_element_type().bitwidth() == 4 && weights->k % 2 != 0) return {};
    return StackedLinear{weights, {}, matmul->input_value(0)};
}

std::optional<StackedLinear> find_stacked_linear(const Value& value) {
    const Value inner = value;
    if (!ov::is_type<ov::op::v1::Add>(inner.get_node())) return find_stacked_product(inner);
    auto sum = split_operands<ov::op::v1::Add>(inner, find_stacked_product);
    if (!sum) return {};
    StackedLinear& linear = sum->first;
    const auto bias = constant_under(sum->second);
    const ov::Shape expected{linear.weights->experts, 1, linear.weights->n};
    if (!bias || bias->get_shape() != expected) return {};
    linear.bias = bias->cast_vector<float>();
    return std::move(linear);
}

/// Gate and up: two stacks, or rows of one.
struct GateAndUp {
    StackedLinear gate, up;
    RowChoice gate_rows, up_rows;
};

std::optional<GateAndUp> find_two_stacks(const Value& gate, const Value& up) {
    auto gates = find_stacked_linear(gate), ups = find_stacked_linear(up);
    if (!gates || !ups || gates->input != ups->input) return {};
    const size_t n = gates->weights->n;
    return GateAndUp{std::move(*gates), std::move(*ups), {0, 1, n}, {0, 1, n}};
}

/// The rows that a Slice takes of its input's last dimension of n.
std::optional<RowChoice> sliced_rows(const ov::op::v8::Slice& slice, size_t n) {
    const auto start = integers(slice.input_value(1)), stop = integers(slice.input_value(2));
    const auto step = integers(slice.input_value(3));
    const auto one = [](const auto& values) { return values && values->size() == 1; };
    if (slice.get_input_size() != 5 || !one(start) || !one(stop) || !one(step) ||
        !is_axis(slice.input_value(4), 2, 3))
        return {};
    const auto count = int64_t(n);
    const int64_t first = (*start)[0] < 0 ? (*start)[0] + count : (*start)[0];
    const int64_t last = (*stop)[0] < 0 ? (*stop)[0] + count : std::min((*stop)[0], count);
    if ((*step)[0] < 1 || first < 0 || first >= last) return {};
    return RowChoice{size_t(first), size_t((*step)[0]),
                     size_t((last - first - 1) / (*step)[0] + 1)};
}

std::optional<GateAndUp> find_rows_of_one_stack(const Value& gate, const Value& up) {
    const auto gates = as<ov::op::v8::Slice>(gate), ups = as<ov::op::v8::Slice>(up);
    if (!gates || !ups || gates->input_value(0) != ups->input_value(0)) return {};
    auto both = find_stacked_linear(gates->input_value(0));
    if (!both) return {};
    const auto gate_rows = sliced_rows(*gates, both->weights->n);
    const auto up_rows = sliced_rows(*ups, both->weights->n);
    if (!gate_rows || !up_rows || gate_rows->count != up_rows->count) return {};
    return GateAndUp{*both, *both, *gate_rows, *up_rows};
}

std::optional<GateAndUp> find_gate_and_up(const Value& gate, const Value& up) {
    auto two = find_two_stacks(gate, up);
    return two ? std::move(two) : find_rows_of_one_stack(gate, up);
}

/// What an activation is a function of.
struct Activated {
    GateFunction function;
    Value input;
};

/// silu(x * alpha) / alpha, or GELU.
std::optional<Activated> find_activation(const Value& value) {
    if (const auto swish = as<ov::op::v4::Swish>(value)) {
        const auto alpha = swish->get_input_size() == 1 ? std::optional<float>(1.0f)
                                                        : scalar(swish->input_value(1));
        if (!alpha) return {};
        Activated found{{}, swish->input_value(0)};
        found.function.alpha = *alpha;
        return found;
    }
    const auto gelu = as<ov::op::v7::Gelu>(value);
    if (!gelu || gelu->get_approximation_mode() != ov::op::GeluApproximationMode::TANH) return {};
    Activated found{{}, gelu->input_value(0)};
    found.function.kind = GateFunction::Kind::gelu_tanh;
    return found;
}

/// gpt-oss': the gate below a limit, and up within it.
bool find_clamps(Activated& activated, Value& up) {
    const auto raised = split_operands<ov::op::v1::Add>(up, scalar);
    const auto clamp =
        raised && raised->first == 1.0f ? as<ov::op::v0::Clamp>(raised->second) : nullptr;
    const auto lower = split_operands<ov::op::v1::Minimum>(activated.input, scalar);
    if (!clamp || !lower || clamp->get_max() != -clamp->get_min() ||
        float(clamp->get_max()) != lower->first || lower->first <= 0)
        return false;
    activated.function.kind = GateFunction::Kind::clamped_silu;
    activated.function.limit = lower->first;
    activated.input = lower->second;
    up = clamp->input_value(0);
    return true;
}

struct FoundExperts {
    GateAndUp gate_and_up;
    StackedLinear down;
    GateFunction function;
    Value x;  // [..., k]
};

/// The value that Tile repeats for each expert.
std::optional<Value> find_tiled(const Value& value, size_t experts, size_t k) {
    const auto tile = as<ov::op::v0::Tile>(without_reshapes(value));
    const auto repeats = tile ? integers(tile->input_value(1)) : std::nullopt;
    if (!repeats || *repeats != std::vector<int64_t>{int64_t(experts), 1}) return {};
    const auto is_rows = [&](const Value& rows) {
        const ov::PartialShape& shape = rows.get_partial_shape();
        return shape.rank().is_static() && shape.size() >= 2 &&
               shape[shape.size() - 1] == int64_t(k) && rows.get_element_type() == ov::element::f32;
    };
    Value x = tile->input_value(0);
    if (ov::is_type<ov::op::v1::Reshape>(x.get_node()) && is_rows(x.get_node()->input_value(0)))
        x = x.get_node()->input_value(0);
    if (!is_rows(x)) return {};
    return x;
}

std::optional<FoundExperts> find_experts(const Value& outputs) {
    auto down = find_stacked_linear(without_reshapes(outputs));
    if (!down) return {};
    auto product = split_operands<ov::op::v1::Multiply>(down->input, find_activation);
    if (!product) return {};
    auto& [activated, up] = *product;
    if (activated.function.kind == GateFunction::Kind::silu && !find_clamps(activated, up) &&
        activated.function.alpha != 1.0f)
        return {};
    auto halves = find_gate_and_up(activated.input, up);
    if (!halves) return {};
    const CompressedWeights& gate = *halves->gate.weights;
    const size_t inner = halves->gate_rows.count;
    if (halves->up_rows.count != inner || halves->up.weights->experts != gate.experts ||
        halves->up.weights->k != gate.k || down->weights->experts != gate.experts ||
        down->weights->k != inner || halves->up.weights->is_float() != gate.is_float() ||
        down->weights->is_float() != gate.is_float())
        return {};
    const auto x = find_tiled(halves->gate.input, gate.experts, gate.k);
    if (!x) return {};
    return FoundExperts{std::move(*halves), std::move(*down), activated.function, *x};
}

/// One expert's numbers of a bias, as rows are chosen.
std::vector<float> bias_of(const StackedLinear& linear, size_t expert, const RowChoice& rows) {
    std::vector<float> bias;
    const float* all = linear.bias.data() + expert * linear.weights->n;
    for (size_t i = 0; i < (linear.bias.empty() ? 0 : rows.count); ++i)
        bias.push_back(all[rows.first + i * rows.step]);
    return bias;
}

std::shared_ptr<const kernels::Experts> pack_experts(const FoundExperts& found,
                                                     kernels::WeightMemory& memory,
                                                     const MappedFiles& files) {
    const auto& [gate, up, gate_rows, up_rows] = found.gate_and_up;
    const RowChoice down_rows{0, 1, found.down.weights->n};
    const StackPacker gates(*gate.weights), ups(*up.weights), downs(*found.down.weights);
    auto experts = std::make_shared<kernels::Experts>();
    experts->function = found.function;
    for (size_t e = 0; e < gate.weights->experts; ++e)
        experts->experts.push_back({gates.pack(e, gate_rows, memory), ups.pack(e, up_rows, memory),
                                    downs.pack(e, down_rows, memory), bias_of(gate, e, gate_rows),
                                    bias_of(up, e, up_rows), bias_of(found.down, e, down_rows)});
    kernels::check_experts(*experts);
    for (const StackedLinear* linear : {&gate, &up, &found.down}) linear->weights->release(files);
    return experts;
}

/// The Reshape whose pattern, without its first number, is that of the sum; null where rows of n
/// are. Zeros in it would copy lengths that are others in the sum.
std::shared_ptr<ov::op::v1::Reshape> shape_of_sum(const ov::Node& sum, const Value& outputs) {
    if (sum.get_output_partial_shape(0).size() == 2) return nullptr;
    return as<ov::op::v1::Reshape>(outputs);
}

/// The pattern that reshapes rows of n to the sum over experts' outputs.
Value pattern_of_sum(const ov::Node& sum, const Value& outputs, size_t n) {
    const auto reshape = shape_of_sum(sum, outputs);
    if (!reshape) return Constant::create(ov::element::i64, {2}, {int64_t(-1), int64_t(n)});
    const auto number = [](int64_t value) {
        return Constant::create(ov::element::i64, {1}, {value});
    };
    return std::make_shared<ov::op::v8::Slice>(reshape->input_value(reshape_pattern), number(1),
                                               number(INT32_MAX), number(1), number(0));
}

/// Puts the node in the place of the sum over experts, which has the shape of x or is reshaped to
/// it. A sum of another shape gets its own.
void put_experts(const std::shared_ptr<ov::Node>& sum, const Value& outputs,
                 const std::shared_ptr<RoutedExperts>& experts) {
    const Value x = experts->input_value(0);
    if (const auto reshape = ov::as_type_ptr<ov::op::v1::Reshape>(only_reader(sum->output(0)))) {
        const auto shape = ov::as_type_ptr<ov::op::util::ShapeOfBase>(
            without_integer_converts(reshape->get_input_node_shared_ptr(reshape_pattern)));
        if (shape && shape->input_value(0) == x) return replace_with(reshape, experts);
    }
    const Value pattern = pattern_of_sum(*sum, outputs, experts->output_width(0));
    replace_with(sum, std::make_shared<ov::op::v1::Reshape>(experts, pattern, false));
    experts->set_friendly_name(sum->get_friendly_name() + "/experts");
}

/// The node of a layer whose outputs and weights are multiplied and summed; null if it is none.
std::shared_ptr<RoutedExperts> make_experts(const Value& outputs, const Value& weights,
                                            kernels::ActivationPrecision activations,
                                            kernels::WeightMemory& memory,
                                            const MappedFiles& files) {
    const auto routing = find_routing(weights);
    if (!routing) return nullptr;
    const auto found = find_experts(outputs);
    if (!found) return nullptr;
    const CompressedWeights& gate = *found->gate_and_up.gate.weights;
    RoutedExperts::Attributes attributes;
    attributes.active = routing->active;
    attributes.activations = activations;
    const FoundRouter router = find_router(*routing, gate.experts);
    attributes.router = router.router;
    attributes.experts = pack_experts(*found, memory, files);
    ov::OutputVector inputs{found->x};
    if (!router.router)
        inputs.insert(inputs.end(), {routing->weights, routing->chosen});
    else if (without_reshapes(router.input) != without_reshapes(found->x) ||
             router.router->k != gate.k)
        inputs.push_back(router.input);
    attributes.own_router_input = router.router && inputs.size() > 1;
    return std::make_shared<RoutedExperts>(inputs, std::move(attributes));
}

}  // namespace

size_t use_routed_experts(const std::shared_ptr<ov::Model>& model,
                          kernels::ActivationPrecision activations) {
    size_t replaced = 0;
    kernels::WeightMemory memory;
    const MappedFiles files;
    auto nodes = model->get_ordered_ops();
    for (auto& node : nodes) {
        const auto sum = ov::as_type_ptr<ov::op::v1::ReduceSum>(std::exchange(node, nullptr));
        if (!sum || sum->get_keep_dims()) continue;
        const auto product = as<ov::op::v1::Multiply>(sum->input_value(0));
        const ov::PartialShape& shape = sum->get_input_partial_shape(0);
        if (!product || shape.rank().is_dynamic() || !is_axis(sum->input_value(1), 0, shape.size()))
            continue;
        for (const size_t i : {0, 1}) {
            const Value outputs = product->input_value(i);
            const auto reshape = shape_of_sum(*sum, outputs);
            if (reshape ? reshape->get_special_zero() : shape.size() != 3) continue;
            const auto experts =
                make_experts(outputs, product->input_value(1 - i), activations, memory, files);
            if (!experts) continue;
            put_experts(sum, outputs, experts);
            ++replaced;
            break;
        }
    }
    if (replaced > 0) model->validate_nodes_and_infer_types();
    return replaced;
}

}  // namespace pagewheel
