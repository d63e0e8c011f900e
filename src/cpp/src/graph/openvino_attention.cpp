#include "graph/openvino_attention.hpp"

#include <set>

#include "base/check.hpp"
#include "model/graph_file.hpp"
#include "model/port_names.hpp"
#include "openvino/op/constant.hpp"
#include "ops/paged_attention.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
size_t sliding_window_of(const ov::Node& attention, size_t layer,
                         const std::vector<size_t>& windows) {
    if (layer < windows.size()) return windows[layer];
    const auto constant = ov::as_type_ptr<ov::op::v0::Constant>(
        attention.get_input_node_shared_ptr(openvino_input::sliding_window));
    if (!constant) return 0;
    const auto window = constant->cast_vector<int64_t>();
    return window.empty() || window[0] < 0 ? 0 : size_t(window[0]);
}

bool is_paged_attention(const ov::Node& node) {
    return std::string(node.get_type_name()) == "PagedAttentionExtension" ||
           ov::is_type<PagedAttention>(&node);
}

bool openvino_keeps_state(const ov::Node& node) {
    static const std::set<std::string> types{"PagedCausalConv1D", "PagedGatedDeltaNet",
                                             "PagedSelectiveSSM"};
    return types.count(node.get_type_name()) != 0;
}

bool writes_kv_cache(ov::Node& attention) {
    return find_attribute<bool>(attention, "write_kv_cache").value_or(true);
}

std::vector<OpenVinoAttentionLayer> find_openvino_attention(const ov::Model& model,
                                                            const std::vector<size_t>& windows) {
    std::vector<OpenVinoAttentionLayer> layers;
    std::set<size_t> owned;
    for (const auto& node : model.get_ordered_ops()) {
        if (std::string(node->get_type_name()) != "PagedAttentionExtension") continue;
        OpenVinoAttentionLayer layer;
        layer.layer = layers.size();
        const std::string cache =
            node->get_input_node_ptr(openvino_input::key_cache)->get_friendly_name();
        layer.cache = size_t(std::stoul(cache.substr(cache.find('.') + 1)));
        layer.owns_cache = owned.insert(layer.cache).second;
        layer.sliding_window = sliding_window_of(*node, layer.layer, windows);
        layer.block_indices =
            node->get_input_node_ptr(openvino_input::block_indices)->get_friendly_name();
        for (const ov::Input<ov::Node>& reader :
             node->output(openvino_scores_output).get_target_inputs())
            layer.scores = reader.get_node()->get_friendly_name();
        check_argument(
            layer.block_indices.rfind(ports::block_indices_prefix, 0) == 0 && !layer.scores.empty(),
            ErrorCode::model_unsupported, "OpenVINO's attention ", node->get_friendly_name(),
            " has no block table or no scores of its own; use attention_backend native");
        layers.push_back(layer);
    }
    return layers;
}

}  // namespace pagewheel
