#include "graph/passes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "graph/state_operations.hpp"
#include "model/port_names.hpp"
#include "openvino/op/parameter.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Parameter;

/// A constant per head; empty if the node has none.
std::vector<float> per_head(const ov::Node& node, size_t input, size_t heads) {
    const auto values = constant_at(node, input)->cast_vector<float>();
    if (!values.empty() && values.size() != heads)
        throw NotServed(
            concat("its input ", input, " has ", values.size(), " values for ", heads, " heads"));
    return values;
}

/// An input that must be empty, as the native op does not have what it is for.
void expect_empty(const ov::Node& node, size_t input, const char* what) {
    if (node.get_input_size() > input && constant_at(node, input)->get_byte_size() != 0)
        throw NotServed(concat("it uses ", what));
}

size_t rt_size(const ov::Node& node, const char* key) {
    const auto& info = node.get_rt_info();
    const auto value = info.find(key);
    if (value == info.end()) throw NotServed(concat("it does not say ", key));
    return size_t(std::stoll(value->second.as<std::string>()));
}

LayerRotary rotary_of(size_t layer, const NativeAttentionOptions& options) {
    if (options.rotary.empty()) return {};
    return options.rotary[std::min(layer, options.rotary.size() - 1)];
}

PagedAttention::Attributes attributes_of(const std::shared_ptr<ov::Node>& node, size_t layer,
                                         const NativeAttentionOptions& options) {
    expect_empty(*node, openvino_input::rotated, "rotation in place");
    expect_empty(*node, openvino_input::xattention, "xattention");
    expect_empty(*node, openvino_input::token_types, "token types");
    expect_empty(*node, openvino_input::qq_bias, "a query-query bias");
    PagedAttention::Attributes attributes;
    kernels::AttentionConfig& config = attributes.config;
    config.layout = {options.format, options.block_size, rt_size(*node, "num_k_heads"),
                     rt_size(*node, "k_head_size"), rt_size(*node, "v_head_size")};
    if (rt_size(*node, "num_v_heads") != config.layout.kv_heads)
        throw NotServed("it has other numbers of key and value heads");
    config.heads = dimension_at(*node, openvino_input::query, 2, 1) / config.layout.key_size;
    const auto scale = constant_at(*node, openvino_input::scale)->cast_vector<float>();
    config.scale = scale.empty() ? 1.0f / std::sqrt(float(config.layout.key_size)) : scale[0];
    config.soft_cap = options.soft_cap;
    config.batch_invariant = options.batch_invariant;
    if (layer >= options.sliding_windows.size()) constant_at(*node, openvino_input::sliding_window);
    config.sliding_window = sliding_window_of(*node, layer, options.sliding_windows);
    config.rotary_dims = rotary_of(layer, options).dims;
    config.interleaved = rotary_of(layer, options).interleaved;
    config.write_kv_cache = writes_kv_cache(*node);
    attributes.alibi_slopes = per_head(*node, openvino_input::alibi, config.heads);
    attributes.sinks = per_head(*node, openvino_input::sinks, config.heads);
    check_served(config.layout);
    return attributes;
}

/// Adds parameters to the model and takes them out, by name.
class Rewriter {
public:
    Rewriter(const std::shared_ptr<ov::Model>& model, const NativeAttentionOptions& options)
        : m_model(model), m_options(options) {}

    /// `layer` counts all attention nodes.
    void replace(const std::shared_ptr<ov::Node>& node, size_t layer,
                 PagedAttention::Attributes attributes) {
        const std::string key_name =
            node->get_input_node_ptr(openvino_input::key_cache)->get_friendly_name();
        const std::string value_name =
            node->get_input_node_ptr(openvino_input::value_cache)->get_friendly_name();
        const kernels::CacheLayout& layout = attributes.config.layout;
        const auto cache = [&](size_t block_bytes) {
            const size_t slots = layout.kv_heads * layout.block_size;
            check_invariant(block_bytes % slots == 0, "a block of ", block_bytes, " bytes has ",
                            slots, " slots");
            return ov::PartialShape{-1, int64_t(layout.kv_heads), int64_t(layout.block_size),
                                    int64_t(block_bytes / slots)};
        };
        ov::OutputVector inputs(Input::num_inputs);
        for (size_t i : {Input::query, Input::key, Input::value})
            inputs[i] = as_f32(node->input_value(i));
        // A layer that shares another's cache finds its parameters there already.
        inputs[Input::key_blocks] =
            parameter(key_name, ov::element::u8, cache(layout.key_block_bytes()));
        inputs[Input::value_blocks] =
            parameter(value_name, ov::element::u8, cache(layout.value_block_bytes()));
        inputs[Input::batch_tables] = parameter(ports::batch_tables, ov::element::i32, {-1});
        attributes.layer = size_t(std::stoul(key_name.substr(key_name.find('.') + 1)));
        if (attributes.config.write_kv_cache)
            m_layers.push_back({layout, layer, attributes.layer, attributes.config.sliding_window,
                                rotary_of(layer, m_options), attributes.config.heads});
        else
            for (CacheLayer& owner : m_layers)
                if (owner.cache == attributes.layer)
                    owner.widen_window(attributes.config.sliding_window);
        const auto native = std::make_shared<PagedAttention>(inputs, attributes);
        native->set_friendly_name(node->get_friendly_name());
        // OpenVINO's op has more outputs; they are unused without its score results.
        node->output(0).replace(native->output(0));
    }

    void replace(const std::shared_ptr<ov::Node>& node, const StateOperation& operation) {
        const std::string name =
            node->get_input_node_ptr(operation.states_input)->get_friendly_name();
        const ov::Output<ov::Node> native =
            operation.make(parameter(name, ov::element::u8, {-1, int64_t(operation.state_bytes)}),
                           parameter(ports::batch_tables, ov::element::i32, {-1}));
        node->output(0).replace(native);
    }

    std::vector<CacheLayer> layers() const {
        std::vector<CacheLayer> layers = m_layers;
        std::sort(layers.begin(), layers.end(),
                  [](const CacheLayer& a, const CacheLayer& b) { return a.cache < b.cache; });
        return layers;
    }

    /// Takes out the parameters that no one reads any more: OpenVINO's caches and tables.
    void finish() {
        const auto parameters = m_model->get_parameters();
        for (const auto& parameter : parameters)
            if (parameter->output(0).get_target_inputs().empty())
                m_model->remove_parameter(parameter);
        m_model->validate_nodes_and_infer_types();
    }

private:
    using Input = PagedAttention::Input;

    ov::Output<ov::Node> parameter(const std::string& name, const ov::element::Type& type,
                                   const ov::PartialShape& shape) {
        auto& known = m_added[name];
        if (!known) {
            // OpenVINO's cache of this name goes; two inputs must not share a name meanwhile.
            for (const auto& old : m_model->get_parameters())
                if (old->get_friendly_name() == name) old->output(0).get_tensor().set_names({});
            known = std::make_shared<Parameter>(type, shape);
            known->set_friendly_name(name);
            known->output(0).get_tensor().set_names({name});
            m_model->add_parameters({known});
        }
        return known;
    }

    std::shared_ptr<ov::Model> m_model;
    NativeAttentionOptions m_options;
    std::map<std::string, std::shared_ptr<Parameter>> m_added;
    std::vector<CacheLayer> m_layers;
};

}  // namespace

NativeAttentionReport use_native_attention(const std::shared_ptr<ov::Model>& model,
                                           const NativeAttentionOptions& options) {
    NativeAttentionReport report;
    struct Layer {
        std::shared_ptr<ov::Node> node;
        size_t number;
        PagedAttention::Attributes attributes;
    };
    std::vector<Layer> served;
    std::vector<std::pair<std::shared_ptr<ov::Node>, StateOperation>> states;
    size_t num_layers = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const bool is_attention = std::string(node->get_type_name()) == "PagedAttentionExtension";
        if (!is_attention && !openvino_keeps_state(*node)) continue;
        const size_t number = num_layers;
        num_layers += is_attention;
        try {
            if (is_attention)
                served.push_back({node, number, attributes_of(node, number, options)});
            else
                states.emplace_back(node, native_state_operation(node, options));
        } catch (const NotServed& reason) {
            report.left.push_back(node->get_friendly_name() +
                                  " stays with OpenVINO: " + reason.what());
        }
    }
    if (options.all_or_none && !report.left.empty()) return report;
    Rewriter rewriter(model, options);
    for (const Layer& layer : served) rewriter.replace(layer.node, layer.number, layer.attributes);
    for (const auto& [node, operation] : states) rewriter.replace(node, operation);
    report.num_replaced = served.size() + states.size();
    served.clear();  // what only OpenVINO's nodes read can go when they are gone
    states.clear();
    if (report.num_replaced > 0) rewriter.finish();
    report.layers = rewriter.layers();
    return report;
}

}  // namespace pagewheel
