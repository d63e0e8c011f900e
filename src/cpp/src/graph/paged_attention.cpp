#include "graph/passes.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "model/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/cos.hpp"
#include "openvino/op/gather.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/result.hpp"
#include "openvino/op/scaled_dot_product_attention.hpp"
#include "openvino/op/sin.hpp"
#include "openvino/op/util/assign_base.hpp"
#include "openvino/pass/manager.hpp"
#include "openvino/pass/sdpa_to_paged_attention.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

bool has_input_beginning(const ov::Model& model, const char* begin) {
    for (const auto& input : model.inputs())
        for (const std::string& name : input.get_names())
            if (name.rfind(begin, 0) == 0) return true;
    return false;
}

bool has_cache_inputs(const ov::Model& model) {
    return has_input_beginning(model, ports::key_cache_prefix) ||
           has_input_beginning(model, ports::selective_ssm_state_prefix);
}

bool attends(const ov::Model& model) {
    const auto nodes = model.get_ops();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return ov::is_type<ov::op::v13::ScaledDotProductAttention>(node);
    });
}

/// SDPAToPagedAttention refuses a model in which nothing attends. It has this to look at meanwhile:
/// attention that reads no state and gives nothing.
std::shared_ptr<ov::op::v0::Result> add_attention_of_nothing(ov::Model& model) {
    const auto zero = ov::op::v0::Constant::create(ov::element::f32, {1, 1, 1, 1}, {0});
    const auto result = std::make_shared<ov::op::v0::Result>(
        std::make_shared<ov::op::v13::ScaledDotProductAttention>(zero, zero, zero, false));
    model.add_results({result});
    return result;
}

/// Exports of Qwen3.5's text part count positions off the cache's length, which is lost where the
/// cache is paged: every token would have the first one's position.
void check_positions(const ov::Model& model) {
    bool rotates = false;
    for (const auto& node : model.get_ops())
        rotates |= ov::is_type<ov::op::v0::Cos>(node) || ov::is_type<ov::op::v0::Sin>(node);
    bool reads_positions = false;
    for (const auto& input : model.inputs())
        reads_positions |=
            input.get_names().count(ports::position_ids) != 0 && !input.get_target_inputs().empty();
    check_argument(
        reads_positions || !rotates, ErrorCode::model_unsupported,
        "the model rotates keys, but not by its input position_ids: positions that are "
        "counted off the cache's length cannot be paged. Convert the Hugging Face folder "
        "or a GGUF file with pagewheel");
}

/// The input to gather: of the vocabulary projection, if only elementwise work follows it, else the
/// result's own.
ov::Input<ov::Node> find_gather_point(const std::shared_ptr<ov::Node>& result) {
    static const std::set<std::string> elementwise{"Convert", "Multiply", "Divide", "Tanh", "Add"};
    auto node = result->get_input_node_shared_ptr(0);
    while (elementwise.count(node->get_type_name()) != 0) node = node->get_input_node_shared_ptr(0);
    return ov::is_type<ov::op::v0::MatMul>(node) ? node->input(0) : result->input(0);
}

}  // namespace

void check_decoder_inputs(const ov::Model& model, bool is_head) {
    if (has_cache_inputs(model)) return;
    std::set<std::string> known{ports::input_ids, ports::attention_mask, ports::position_ids,
                                ports::beam_idx};
    if (is_head) known.insert(ports::hidden_states);
    std::set<std::string> names;
    for (const auto& input : model.inputs()) {
        // An input may have several names.
        std::string name = input.get_names().empty() ? "(no name)" : input.get_any_name();
        for (const std::string& each : input.get_names())
            if (known.count(each) != 0) name = each;
        names.insert(name);
    }
    for (const char* needed : {ports::input_ids, ports::attention_mask})
        check_argument(names.count(needed) != 0, ErrorCode::model_unsupported,
                       "the model has no input ", needed,
                       "; a text decoder with stateful keys and values is needed");
    check_argument(!is_head || names.count(ports::hidden_states) != 0, ErrorCode::model_unsupported,
                   "the head has no input ", ports::hidden_states);
    for (const std::string& name : names)
        check_argument(known.count(name) != 0, ErrorCode::model_unsupported,
                       "the model has an input '", name,
                       "' that nothing fills; a text decoder has input_ids, attention_mask, "
                       "position_ids and beam_idx, and keeps keys and values as states");
}

void apply_paged_attention(const std::shared_ptr<ov::Model>& model, const PagingOptions& options) {
    if (has_cache_inputs(*model)) {
        check_argument((!options.per_layer_tables ||
                        has_input_beginning(*model, ports::block_indices_prefix)) &&
                           (!options.scores || has_input_beginning(*model, ports::score_window)),
                       ErrorCode::model_unsupported,
                       "the model's attention is paged already, without block tables by layer and "
                       "scores");
        return;
    }
    sum_channel_decays(*model);
    const auto nothing = attends(*model) ? nullptr : add_attention_of_nothing(*model);
    try {
        ov::pass::Manager manager;
        manager.register_pass<ov::pass::SDPAToPagedAttention>(options.per_layer_tables,
                                                              options.scores, options.scores);
        manager.run_passes(model);
    } catch (const ov::Exception& error) {
        refuse_argument(ErrorCode::model_unsupported,
                        "the model's attention cannot be paged: ", reason(error));
    }
    if (nothing) model->remove_result(nothing);
    check_positions(*model);
    check_argument(has_cache_inputs(*model), ErrorCode::model_unsupported,
                   "the model's attention cannot be paged: no attention over states was found");
    for (const auto& sink : model->get_sinks())
        check_argument(!ov::is_type<ov::op::util::AssignBase>(sink), ErrorCode::model_unsupported,
                       "the model keeps a state that cannot be paged: ", sink->get_friendly_name());
}

void gather_logits(const std::shared_ptr<ov::Model>& model) {
    using ov::op::v0::Constant;
    std::shared_ptr<ov::op::v0::Result> result;
    for (const auto& candidate : model->get_results())
        if (candidate->get_output_tensor(0).get_names().count(ports::logits) != 0)
            result = candidate;
    check_argument(result != nullptr, ErrorCode::model_unsupported,
                   "the model has no output named logits");
    const ov::PartialShape shape = result->get_input_partial_shape(0);
    check_argument(shape.rank().is_static() && shape.size() == 3 && shape[2].is_static(),
                   ErrorCode::model_unsupported, "the model's logits have shape ", shape,
                   "; expected [tokens, 1, vocabulary]");

    const auto rows = add_parameter(*model, ports::sampled_tokens_indices, ov::element::i64, {-1});

    // Tokens lie along dimension 0, [tokens, 1, hidden], unless that one is fixed to 1.
    ov::Input<ov::Node> point = find_gather_point(result);
    const bool transposed = shape[0].is_static() && shape[1].is_dynamic();
    const auto axis = Constant::create(ov::element::i64, {}, {transposed ? 1 : 0});
    const auto gather = std::make_shared<ov::op::v8::Gather>(point.get_source_output(), rows, axis);
    gather->set_friendly_name("gather_sampled_tokens");
    point.replace_source_output(gather);

    const ov::Output<ov::Node> logits =
        as_f32(reshaped_to(result->input_value(0), {-1, shape[2].get_length()}));
    const auto names = result->get_output_tensor(0).get_names();
    result->input(0).replace_source_output(logits);
    logits.get_tensor().add_names(names);
    model->validate_nodes_and_infer_types();
}

}  // namespace pagewheel
