#include "graph/gather_logits.hpp"

#include <set>
#include <string>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "graph/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/result.hpp"

namespace pagewheel {
namespace {

/// The input to gather: of the vocabulary projection, if only elementwise work follows it, else the
/// result's own.
ov::Input<ov::Node> find_gather_point(const std::shared_ptr<ov::Node>& result) {
    static const std::set<std::string> elementwise{"Convert", "Multiply", "Divide", "Tanh", "Add"};
    auto node = result->get_input_node_shared_ptr(0);
    while (elementwise.count(node->get_type_name()) != 0) node = node->get_input_node_shared_ptr(0);
    return ov::is_type<ov::op::v0::MatMul>(node) ? node->input(0) : result->input(0);
}

}  // namespace

void gather_logits(const std::shared_ptr<ov::Model>& model) {
    using ov::op::v0::Constant;
    std::shared_ptr<ov::op::v0::Result> result;
    for (const auto& candidate : model->get_results())
        if (candidate->get_output_tensor(0).get_names().count(ports::logits) != 0)
            result = candidate;
    check_argument(result != nullptr, "the model has no output named logits");
    const ov::PartialShape shape = result->get_input_partial_shape(0);
    check_argument(shape.rank().is_static() && shape.size() == 3 && shape[2].is_static(),
                   "the model's logits have shape ", shape, "; expected [tokens, 1, vocabulary]");

    const auto rows = add_parameter(*model, ports::sampled_tokens_indices, ov::element::i64, {-1});

    // Tokens lie along dimension 0, [tokens, 1, hidden], unless that one is fixed to 1.
    ov::Input<ov::Node> point = find_gather_point(result);
    const bool transposed = shape[0].is_static() && shape[1].is_dynamic();
    const auto axis = Constant::create(ov::element::i64, {}, {transposed ? 1 : 0});
    const auto gather = std::make_shared<ov::op::v8::Gather>(point.get_source_output(), rows, axis);
    gather->set_friendly_name("gather_sampled_tokens");
    point.replace_source_output(gather);

    const auto two_dimensions =
        Constant::create(ov::element::i64, {2}, {int64_t(-1), shape[2].get_length()});
    std::shared_ptr<ov::Node> logits = std::make_shared<ov::op::v1::Reshape>(
        result->input_value(0), two_dimensions, /*special_zero=*/false);
    if (logits->get_element_type() != ov::element::f32)
        logits = std::make_shared<ov::op::v0::Convert>(logits, ov::element::f32);
    const auto names = result->get_output_tensor(0).get_names();
    result->input(0).replace_source_output(logits);
    logits->output(0).get_tensor().add_names(names);
    model->validate_nodes_and_infer_types();
}

}  // namespace pagewheel
