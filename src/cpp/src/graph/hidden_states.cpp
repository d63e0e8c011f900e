// What heads that draft read of a model, and what they give for the next draft.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "graph/function_patterns.hpp"
#include "graph/node_queries.hpp"
#include "graph/passes.hpp"
#include "model/port_names.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/concat.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/convert.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/result.hpp"
#include "openvino/op/unsqueeze.hpp"
#include "openvino/op/util/gather_base.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

std::shared_ptr<ov::op::v0::Parameter> hidden_input(const ov::Model& head) {
    for (const auto& parameter : head.get_parameters())
        if (parameter->output(0).get_names().count(ports::hidden_states) != 0) return parameter;
    return nullptr;
}

/// A head's input of hidden states [batch, tokens, hidden] becomes [tokens, hidden].
void flatten_hidden_input(const ov::Model& head) {
    const auto parameter = hidden_input(head);
    if (!parameter) return;
    const ov::PartialShape shape = parameter->get_partial_shape();
    check_argument(shape.rank().is_static() && shape.size() == 3 && shape[2].is_static() &&
                       parameter->get_element_type() == ov::element::f32,
                   ErrorCode::model_unsupported, "the head's hidden_states are ",
                   parameter->get_element_type(), ' ', shape,
                   "; expected f32 [batch, tokens, hidden]");
    const auto readers = parameter->output(0).get_target_inputs();
    parameter->set_partial_shape({-1, shape[2]});
    const auto rows = std::make_shared<ov::op::v0::Unsqueeze>(
        parameter, ov::op::v0::Constant::create(ov::element::i64, {}, {1}));
    for (ov::Input<ov::Node> reader : readers) reader.replace_source_output(rows);
}

/// `output`, computed of `to` as it is of `from`.
ov::Output<ov::Node> copy_behind(const ov::Output<ov::Node>& from, const ov::Output<ov::Node>& to,
                                 const ov::Output<ov::Node>& output) {
    if (output == from) return to;
    if (output.get_node()->get_input_size() == 0) return output;
    ov::OutputVector inputs = output.get_node()->input_values();
    for (ov::Output<ov::Node>& input : inputs) input = copy_behind(from, to, input);
    return output.get_node()->clone_with_new_inputs(inputs)->output(output.get_index());
}

void add_states_output(const std::shared_ptr<ov::Model>& model, const ov::Output<ov::Node>& rows) {
    const size_t size = row_width(rows.get_partial_shape());
    check_argument(
        size > 0, ErrorCode::model_unsupported,
        "the model's hidden states have a size that is not known: ", rows.get_partial_shape());
    ov::Output<ov::Node> states = as_f32(reshaped_to(rows, {-1, int64_t(size)}));
    states.set_names({ports::last_hidden_state});
    model->add_results({std::make_shared<ov::op::v0::Result>(states)});
    model->validate_nodes_and_infer_types();
}

std::optional<FoundNorm> norm_of(const ov::Output<ov::Node>& rows) {
    return find_norm(rows, row_width(rows.get_partial_shape()));
}

/// What `value` is a converted, reshaped or scaled form of.
ov::Output<ov::Node> without_scales(ov::Output<ov::Node> value) {
    const auto is_constant = [](const ov::Output<ov::Node>& factor) {
        return constant_under(factor) ? std::optional(true) : std::nullopt;
    };
    for (;;) {
        if (ov::is_type<ov::op::v0::Convert>(value.get_node()) || is_view(*value.get_node()))
            value = value.get_node()->input_value(0);
        else if (const auto scaled = split_operands<ov::op::v1::Multiply>(value, is_constant))
            value = scaled->second;
        else
            return value;
    }
}

/// The hidden states from the embeddings to `last`, which each half of a layer adds to.
ov::OutputVector residual_stream(const ov::Model& model, const ov::Output<ov::Node>& last) {
    std::unordered_map<const ov::Node*, size_t> places;
    for (const auto& node : model.get_ordered_ops()) places.emplace(node.get(), places.size());
    ov::OutputVector stream{last};
    while (const auto sum = as<ov::op::v1::Add>(without_scales(stream.back()))) {
        // What is added is computed of what it is added to, and so stands behind it.
        const auto place = [&](size_t i) {
            return places.at(without_scales(sum->input_value(i)).get_node());
        };
        stream.push_back(sum->input_value(place(0) < place(1) ? 0 : 1));
    }
    std::reverse(stream.begin(), stream.end());
    return stream;
}

/// The product with fc, which reads a head's hidden states.
std::shared_ptr<ov::op::v0::MatMul> find_fc(const ov::Model& head) {
    if (const auto states = hidden_input(head))
        for (const auto& reader : states->output(0).get_target_inputs()) {
            auto fc = ov::as_type_ptr<ov::op::v0::MatMul>(reader.get_node()->shared_from_this());
            if (fc && reader.get_index() == 0 && !fc->get_transpose_a() && fc->get_transpose_b())
                return fc;
        }
    refuse_argument(ErrorCode::model_unsupported, ParameterName("draft_model"),
                    " has no input hidden_states that fc is multiplied with");
}

/// Where a decoder reads the table of its tokens' embeddings, of the first rows of `width`.
ov::Input<ov::Node> find_embeddings(const ov::Model& model, size_t width) {
    for (const auto& node : model.get_ordered_ops()) {
        if (!ov::is_type<ov::op::util::GatherBase>(node)) continue;
        const ov::Output<ov::Node> ids = without_scales(node->input_value(1));
        if (ids.get_names().count(ports::input_ids) != 0 &&
            row_width(node->get_input_partial_shape(0)) == width)
            return node->input(0);
    }
    refuse_argument(ErrorCode::model_unsupported, ParameterName("draft_model"),
                    " has hidden states of ", width,
                    " channels, but the model has no embeddings of this size");
}

/// The output d2t says how much further each token is among the model's.
std::vector<int64_t> take_drafted_tokens(ov::Model& head) {
    std::vector<int64_t> tokens;
    for (const auto& result : ov::ResultVector(head.get_results())) {
        const auto offsets = constant_under(result->input_value(0));
        if (!offsets || offsets->get_friendly_name().find("d2t") == std::string::npos) continue;
        head.remove_result(result);
        // Unsigned, since numbers of a damaged file may be of any size.
        for (const int64_t offset : offsets->cast_vector<int64_t>())
            tokens.push_back(int64_t(uint64_t(offset) + tokens.size()));
        break;
    }
    return tokens;
}

}  // namespace

void give_hidden_states(const std::shared_ptr<ov::Model>& model) {
    ov::Output<ov::Node> rows = gather_of_logits(*model).input_value(0);
    // Logits go on having a norm of their own, so that it is computed as without this output.
    if (const auto norm = norm_of(rows)) rows = copy_behind(norm->x, norm->x, rows);
    add_states_output(model, rows);
}

void give_head_states(const std::shared_ptr<ov::Model>& head, bool before_norm) {
    flatten_hidden_input(*head);
    ov::Node& gather = gather_of_logits(*head);
    const ov::Output<ov::Node> normed = gather.input_value(0);
    if (const auto norm = before_norm ? norm_of(normed) : std::nullopt) {
        const auto readers = gather.output(0).get_target_inputs();
        gather.input(0).replace_source_output(norm->x);
        const ov::Output<ov::Node> rows = copy_behind(norm->x, gather.output(0), normed);
        for (ov::Input<ov::Node> reader : readers) reader.replace_source_output(rows);
    }
    add_states_output(head, gather.output(0));
}

void give_eagle3_states(const std::shared_ptr<ov::Model>& model, size_t num_layers,
                        const ov::Model& head, std::vector<size_t> layers) {
    const ParameterName parameter("draft_model");
    const ov::Output<ov::Node> rows = gather_of_logits(*model).input_value(0);
    const auto norm = norm_of(rows);
    const ov::OutputVector stream = residual_stream(*model, norm ? norm->x : rows);
    const size_t num_sums = stream.size() - 1;
    check_argument(num_sums > 0 && num_layers > 2 && num_sums % num_layers == 0,
                   ErrorCode::model_unsupported, parameter,
                   " reads hidden states between the model's layers, which were not found: ",
                   num_sums, " sums in ", num_layers, " layers");
    if (layers.empty()) layers = {2, num_layers / 2, num_layers - 3};
    ov::OutputVector read;
    for (const size_t layer : layers) {
        check_argument(layer <= num_layers, ErrorCode::model_unsupported, parameter,
                       " reads what layer ", layer, " reads; the model has ", num_layers);
        read.push_back(stream[layer * (num_sums / num_layers)]);
    }
    const auto fc = find_fc(head);
    const auto joined = std::make_shared<ov::op::v0::Concat>(read, 2);
    const size_t width = row_width(joined->get_output_partial_shape(0));
    check_argument(row_width(fc->get_input_partial_shape(1)) == width, ErrorCode::model_unsupported,
                   parameter, " has fc for ", row_width(fc->get_input_partial_shape(1)),
                   " channels; ", layers.size(), " layers of the model have ", width);
    add_states_output(model, fc->clone_with_new_inputs({joined, fc->input_value(1)}));
}

std::vector<int64_t> complete_eagle3_head(ov::Model& head, const ov::Model& model) {
    const auto fc = find_fc(head);
    const auto states = hidden_input(head);
    const size_t width = row_width(fc->get_output_partial_shape(0));
    fc->output(0).replace(states);
    states->set_partial_shape({-1, -1, int64_t(width)});
    ov::Input<ov::Node> table = find_embeddings(head, width);
    const ov::Output<ov::Node> shared = find_embeddings(model, width).get_source_output();
    check_argument(table.get_partial_shape() == shared.get_partial_shape() &&
                       table.get_element_type() == shared.get_element_type(),
                   ErrorCode::model_unsupported, ParameterName("draft_model"),
                   " was made for embeddings ", table.get_element_type(), ' ',
                   table.get_partial_shape(), "; the model has ", shared.get_element_type(), ' ',
                   shared.get_partial_shape());
    table.replace_source_output(shared);
    std::vector<int64_t> tokens = take_drafted_tokens(head);
    head.validate_nodes_and_infer_types();
    return tokens;
}

}  // namespace pagewheel
