#include "graph/expert_routing.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "graph/compressed_weights.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/broadcast.hpp"
#include "openvino/op/divide.hpp"
#include "openvino/op/gather_elements.hpp"
#include "openvino/op/greater.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/reduce_max.hpp"
#include "openvino/op/reduce_sum.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/scatter_elements_update.hpp"
#include "openvino/op/select.hpp"
#include "openvino/op/shape_of.hpp"
#include "openvino/op/sigmoid.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/softmax.hpp"
#include "openvino/op/topk.hpp"
#include "openvino/op/transpose.hpp"
#include "openvino/op/util/gather_base.hpp"

namespace pagewheel {
namespace {

using kernels::ExpertRouter;
using Value = ov::Output<ov::Node>;

bool is_filled(const Value& value, float number) {
    const auto broadcast =
        ov::as_type_ptr<ov::op::util::BroadcastBase>(value.get_node_shared_ptr());
    const auto constant = constant_under(broadcast ? broadcast->input_value(0) : value);
    if (!constant) return false;
    const auto values = constant->cast_vector<float>();
    return std::all_of(values.begin(), values.end(), [=](float v) { return v == number; });
}

/// The constant [n] that is added, as f32.
std::optional<std::vector<float>> constant_row(const Value& value) {
    const auto constant = constant_under(value);
    if (!constant) return {};
    return constant->cast_vector<float>();
}

/// Logits: a product of the router's input with a matrix, and a bias.
bool find_logits(Value value, ExpertRouter& router, Value& input) {
    if (auto sum = split_operands<ov::op::v1::Add>(value, constant_row)) {
        if (sum->first.size() != router.experts) return false;
        router.bias = sum->first;
        value = sum->second;
    }
    const auto matmul = as<ov::op::v0::MatMul>(value);
    if (!matmul || matmul->get_transpose_a() || !matmul->get_transpose_b()) return false;
    input = matmul->input_value(0);
    const ov::PartialShape& shape = input.get_partial_shape();
    if (input.get_element_type() != ov::element::f32 || shape.rank().is_dynamic() ||
        shape.size() != 2 || shape[1].is_dynamic())
        return false;
    router.k = size_t(shape[1].get_length());
    const auto plain = constant_under(matmul->input_value(1));
    if (plain && plain->get_shape() == ov::Shape{router.experts, router.k}) {
        router.weights = plain->cast_vector<float>();
        return true;
    }
    std::string reason;
    const auto compressed = find_compressed_weights(matmul->input_value(1), reason);
    if (!compressed || compressed->experts > 0 || compressed->n != router.experts ||
        compressed->k != router.k)
        return false;
    kernels::WeightMemory memory;
    const auto packed = compressed->pack(memory);
    if (!packed->has_integer_zero_points()) return false;
    router.weights.resize(router.experts * router.k);
    for (size_t i = 0; i < router.experts; ++i)
        packed->unpack_row(i, router.weights.data() + i * router.k);
    return true;
}

bool is_softmax(const Value& value) {
    const ov::PartialShape& shape = value.get_partial_shape();
    if (shape.rank().is_dynamic() || shape.size() != 2) return false;
    if (const auto softmax = as<ov::op::v8::Softmax>(value))
        return softmax->get_axis() == 1 || softmax->get_axis() == -1;
    const auto softmax = as<ov::op::v1::Softmax>(value);
    return softmax && softmax->get_axis() == 1;
}

/// What each expert's weight is multiplied with, looked up by what was chosen.
std::optional<std::vector<float>> find_expert_scales(const Value& value, const Value& chosen) {
    const auto gather = ov::as_type_ptr<ov::op::util::GatherBase>(value.get_node_shared_ptr());
    const auto same = [](const Value& a, const Value& b) {
        return without_integer_converts(a.get_node_shared_ptr()) ==
               without_integer_converts(b.get_node_shared_ptr());
    };
    if (!gather || !same(gather->input_value(1), chosen) || scalar(gather->input_value(2)) != 0.0f)
        return {};
    return constant_row(gather->input_value(0));
}

/// From the weights back to the choice: scales, and a division by the sum.
Value find_scaling(Value value, const Value& chosen, ExpertRouter& router) {
    const auto is_scale = [&](const Value& operand) { return find_expert_scales(operand, chosen); };
    if (const auto product = split_operands<ov::op::v1::Multiply>(value, scalar)) {
        router.scale = product->first;
        value = product->second;
    }
    if (auto product = split_operands<ov::op::v1::Multiply>(value, is_scale)) {
        if (product->first.size() != router.experts) return {};
        router.expert_scales = std::move(product->first);
        value = product->second;
    }
    const auto quotient = as<ov::op::v1::Divide>(value);
    if (!quotient) return value;
    const auto sum = as<ov::op::v1::ReduceSum>(quotient->input_value(1));
    if (!sum || !sum->get_keep_dims() || sum->input_value(0) != quotient->input_value(0) ||
        !is_axis(sum->input_value(1), 1, 2))
        return {};
    router.normalise = true;
    return quotient->input_value(0);
}

/// What TopK chooses along the last dimension, if its numbers or values are `value`.
std::shared_ptr<ov::op::util::TopKBase> best_of(const Value& value) {
    const auto best = ov::as_type_ptr<ov::op::util::TopKBase>(
        without_integer_converts(value.get_node_shared_ptr()));
    const bool last = best && best->get_input_partial_shape(0).rank().is_static() &&
                      best->get_axis() + 1 == best->get_input_partial_shape(0).size();
    return last && best->get_mode() == ov::op::TopKMode::MAX ? best : nullptr;
}

/// How many of a group's best scores `worth` [rows, groups] adds up; 0 if it is something else.
size_t num_added_up(const Value& worth, const Value& grouped) {
    const auto is_over_groups = [](const auto& reduction) {
        return reduction && !reduction->get_keep_dims() && is_axis(reduction->input_value(1), 2, 3);
    };
    const auto most = as<ov::op::v1::ReduceMax>(worth);
    if (is_over_groups(most) && most->input_value(0) == grouped) return 1;
    const auto sum = as<ov::op::v1::ReduceSum>(worth);
    const auto best = is_over_groups(sum) ? best_of(sum->input_value(0)) : nullptr;
    return best && sum->input_value(0) == best->output(0) && best->input_value(0) == grouped
               ? best->get_k()
               : 0;
}

/// From scores that are very low outside of the best groups of experts back to all scores. False
/// where they are chosen in a way that is not known.
bool find_groups(Value& scores, ExpertRouter& router) {
    const auto flat = as<ov::op::v1::Reshape>(scores);
    const auto select = flat ? as<ov::op::v1::Select>(flat->input_value(0)) : nullptr;
    if (!select) return true;
    const auto is_kept = as<ov::op::v1::Greater>(without_reshapes(select->input_value(0)));
    const auto kept = is_kept ? ov::as_type_ptr<ov::op::util::ScatterElementsUpdateBase>(
                                    is_kept->get_input_node_shared_ptr(0))
                              : nullptr;
    const auto best = kept ? best_of(kept->input_value(1)) : nullptr;
    const auto grouped = as<ov::op::v1::Reshape>(select->input_value(1));
    const auto least = scalar(select->input_value(2));
    if (!best || !grouped || !least || scalar(is_kept->input_value(1)) != 0.0f ||
        !is_filled(kept->input_value(0), 0) || !is_filled(kept->input_value(2), 1) ||
        !is_axis(kept->input_value(3), 1, 2))
        return false;
    // A corrected score may be below 0.
    if (*least > -1e30f && (*least != 0 || as<ov::op::v1::Add>(grouped->input_value(0))))
        return false;
    const ov::PartialShape& shape = grouped->get_output_partial_shape(0);
    if (shape.size() != 3 || shape[1].is_dynamic() || shape[2].is_dynamic()) return false;
    router.groups = size_t(shape[1].get_length());
    router.active_groups = best->get_k();
    router.group_best = num_added_up(best->input_value(0), grouped->output(0));
    const auto size = size_t(shape[2].get_length());
    scores = grouped->input_value(0);
    return router.group_best > 0 && router.group_best <= size && router.active_groups > 0 &&
           router.active_groups <= router.groups && router.groups * size == router.experts &&
           router.active <= router.active_groups * size;
}

/// The scores that the experts are chosen by, with a correction where the weights have none.
bool find_scores(Value scores, const Value& weights, ov::op::util::TopKBase& best,
                 ExpertRouter& router, Value& input) {
    if (!find_groups(scores, router)) return false;
    if (const auto gathered = as<ov::op::v6::GatherElements>(weights)) {
        if (gathered->input_value(1) != best.output(1)) return false;
        if (const auto corrected = split_operands<ov::op::v1::Add>(scores, constant_row)) {
            if (corrected->first.size() != router.experts) return false;
            router.correction = corrected->first;
            scores = corrected->second;
        }
        if (scores != gathered->input_value(0)) return false;
    } else if (router.groups > 1 || weights != best.output(0)) {
        return false;
    }
    router.scores = ExpertRouter::Scores::logits;
    if (is_softmax(scores)) {
        router.scores = ExpertRouter::Scores::softmax;
        scores = scores.get_node()->input_value(0);
    } else if (as<ov::op::v0::Sigmoid>(scores)) {
        router.scores = ExpertRouter::Scores::sigmoid;
        scores = scores.get_node()->input_value(0);
    }
    return find_logits(scores, router, input);
}

/// What an exporter cuts to the shape of `shaped`, which it has. TopK gave both.
Value without_whole_slice(const Value& value, const Value& shaped) {
    const auto slice = as<ov::op::v8::Slice>(value);
    if (!slice) return value;
    const auto stop = ov::as_type_ptr<ov::op::util::ShapeOfBase>(
        without_integer_converts(slice->get_input_node_shared_ptr(2)));
    const auto all_are = [](const Value& numbers, int64_t number) {
        const auto values = integers(numbers);
        return values && std::all_of(values->begin(), values->end(),
                                     [=](int64_t each) { return each == number; });
    };
    const bool whole = stop && stop->input_value(0) == shaped &&
                       all_are(slice->input_value(1), 0) && all_are(slice->input_value(3), 1) &&
                       slice->get_input_partial_shape(0) == shaped.get_partial_shape();
    return whole ? slice->input_value(0) : value;
}

}  // namespace

std::optional<FoundRouting> find_routing(const Value& weights) {
    const auto transpose = as<ov::op::v1::Transpose>(without_reshapes(weights));
    if (!transpose || integers(transpose->input_value(1)) != std::vector<int64_t>{1, 0}) return {};
    const auto scatter = ov::as_type_ptr<ov::op::util::ScatterElementsUpdateBase>(
        transpose->get_input_node_shared_ptr(0));
    const auto reducing = ov::as_type_ptr<ov::op::v12::ScatterElementsUpdate>(scatter);
    using Reduction = ov::op::v12::ScatterElementsUpdate::Reduction;
    if (!scatter || (reducing && reducing->get_reduction() != Reduction::NONE) ||
        !is_axis(scatter->input_value(3), 1, 2) || !is_filled(scatter->input_value(0), 0))
        return {};
    const ov::PartialShape& shape = scatter->get_input_partial_shape(1);
    const ov::element::Type type = scatter->get_input_element_type(1);
    if (shape.rank().is_dynamic() || shape.size() != 2 || shape[1].is_dynamic() ||
        shape[1].get_length() < 1 || (type != ov::element::i32 && type != ov::element::i64) ||
        scatter->get_input_element_type(2) != ov::element::f32)
        return {};
    return FoundRouting{scatter->input_value(1),
                        without_whole_slice(scatter->input_value(2), scatter->input_value(1)),
                        size_t(shape[1].get_length())};
}

FoundRouter find_router(const FoundRouting& routing, size_t experts) {
    ExpertRouter router;
    router.experts = experts;
    router.active = routing.active;
    const auto best = best_of(routing.chosen);
    const ov::Dimension scored = best ? best->get_input_partial_shape(0)[best->get_axis()] : -1;
    check_argument(routing.active <= experts && scored.get_min_length() <= int64_t(experts),
                   ErrorCode::model_unsupported, routing.chosen.get_node()->get_friendly_name(),
                   " chooses ", routing.active, " of ", scored, " experts, and the layer has ",
                   experts);
    if (!best || best->get_k() != routing.active) return {};
    Value weights = find_scaling(routing.weights, routing.chosen, router), input;
    if (!weights.get_node()) return {};
    if (is_softmax(weights)) {
        router.softmax_of_chosen = true;
        weights = weights.get_node()->input_value(0);
    }
    if (!find_scores(best->input_value(0), weights, *best, router, input)) return {};
    return {std::make_shared<const ExpertRouter>(std::move(router)), input};
}

}  // namespace pagewheel
