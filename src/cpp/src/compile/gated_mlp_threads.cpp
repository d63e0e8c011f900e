#include "compile/gated_mlp_threads.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "compile/inference_arena.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/runtime/properties.hpp"

namespace pagewheel {
namespace {

constexpr int longest_activation = 10;  // in nodes, as many as GELU takes where it is written out

/// Looks at each node once, level by level, and not past a MatMul.
bool depends_on_activation(const ov::Node& node) {
    static const std::set<std::string> functions{"Swish", "Gelu", "Sigmoid", "Tanh", "Erf"};
    std::set<const ov::Node*> seen{&node}, level = seen;
    for (int depth = 0; depth <= longest_activation && !level.empty(); ++depth) {
        std::set<const ov::Node*> inputs;
        for (const ov::Node* each : level) {
            if (functions.count(each->get_type_name()) != 0) return true;
            if (ov::is_type<ov::op::v0::MatMul>(each)) continue;
            for (size_t i = 0; i < each->get_input_size(); ++i)
                if (const ov::Node* input = each->get_input_node_ptr(i); seen.insert(input).second)
                    inputs.insert(input);
        }
        level = std::move(inputs);
    }
    return false;
}

/// Follows first inputs to the node that has none: decompression keeps its constant there.
bool has_plain_weights(const ov::Node& matmul) {
    const ov::Node* node = matmul.get_input_node_ptr(1);
    while (node->get_input_size() > 0) node = node->get_input_node_ptr(0);
    const ov::element::Type type = node->get_output_element_type(0);
    return ov::is_type<ov::op::v0::Constant>(node) && (type.is_real() || type == ov::element::i8);
}

bool in_f32(const CompileOptions& options, const ov::AnyMap& properties) {
    const auto found = properties.find(ov::hint::inference_precision.name());
    if (found != properties.end()) return found->second.as<ov::element::Type>() == ov::element::f32;
    const auto mode = options.openvino.find(ov::hint::execution_mode.name());
    return mode != options.openvino.end() && mode->second.as<std::string>() == "ACCURACY";
}

}  // namespace

bool has_gated_mlp(const ov::Model& model) {
    const auto nodes = model.get_ops();
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
        return ov::is_type<ov::op::v0::MatMul>(node) && has_plain_weights(*node) &&
               depends_on_activation(*node->get_input_node_ptr(0));
    });
}

bool divides_by_no_threads(ov::Core& core, const ov::Model& model, const CompileOptions& options,
                           const ov::AnyMap& properties) {
    if (!options.on_cpu || !options.processor.has(CpuFeature::amx_bf16)) return false;
    try {
        return !in_f32(options, properties) && has_gated_mlp(model) &&
               InferenceArena(core, properties).threads_of_stream() < 2;
    } catch (const ov::Exception&) {  // refused when the model is compiled, which says more
        return false;
    }
}

}  // namespace pagewheel
