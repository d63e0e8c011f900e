#include "graph/passes.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "graph/compressed_weights.hpp"
#include "graph/node_queries.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/util/gather_base.hpp"
#include "ops/gather_rows.hpp"
#include "ops/quantized_linear.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::MatMul;

/// MatMuls of one input, which are replaced together; with weights of floats or of integers.
using Group = std::vector<std::shared_ptr<MatMul>>;

/// Why the kernels cannot take the node; empty if they can.
std::string obstacle(const MatMul& matmul) {
    if (matmul.get_transpose_a() || !matmul.get_transpose_b())
        return "its weights are not [outputs, inputs]";
    if (matmul.get_input_element_type(0) != ov::element::f32 ||
        matmul.get_output_element_type(0) != ov::element::f32)
        return concat("its input is ", matmul.get_input_element_type(0));
    std::string reason;
    const auto weights = find_compressed_weights(matmul.input_value(1), reason);
    if (weights && weights->experts > 0)
        return "it is a stack of experts that stands in no layer of experts that is known";
    return reason;
}

/// Whether the node multiplies by a matrix that does not depend on the model's inputs.
bool has_constant_weights(const ov::Node* node) {
    if (ov::is_type<ov::op::v0::Constant>(node)) return true;
    if (node->get_input_size() == 0) return false;
    for (size_t i = 0; i < node->get_input_size(); ++i)
        if (!has_constant_weights(node->get_input_node_ptr(i))) return false;
    return true;
}

std::vector<Group> find_groups(const ov::Model& model, QuantizedLinearReport& report) {
    std::vector<Group> groups;
    std::map<std::tuple<ov::Node*, size_t, bool>, size_t> known;
    std::map<std::string, std::vector<std::string>> left;  // names by reason
    for (const auto& node : model.get_ordered_ops()) {
        const auto matmul = ov::as_type_ptr<MatMul>(node);
        if (!matmul || !has_constant_weights(matmul->get_input_node_ptr(1))) continue;
        const std::string reason = obstacle(*matmul);
        if (!reason.empty()) {
            left[reason].push_back(matmul->get_friendly_name());
            continue;
        }
        const ov::Output<ov::Node> input = matmul->input_value(0);
        std::string none;
        const bool floats = find_compressed_weights(matmul->input_value(1), none)->is_float();
        const auto [at, fresh] = known.emplace(
            std::make_tuple(input.get_node(), input.get_index(), floats), groups.size());
        if (fresh) groups.emplace_back();
        groups[at->second].push_back(matmul);
    }
    for (const auto& [reason, names] : left)
        report.left.push_back(names.size() == 1 ? names[0] + " stays with OpenVINO: " + reason
                                                : concat(names[0], " and ", names.size() - 1,
                                                         " more stay with OpenVINO: ", reason));
    return groups;
}

/// Look-ups in compressed matrices, which are the vocabulary head's too where that is tied.
class Embeddings {
public:
    explicit Embeddings(const ov::Model& model) {
        for (const auto& node : model.get_ordered_ops()) {
            if (!ov::is_type<ov::op::util::GatherBase>(node)) continue;
            std::string reason;
            const auto table = find_compressed_weights(node->input_value(0), reason);
            if (table && table->experts == 0 && looks_up_rows(*node))
                m_gathers.emplace_back(node, table->values.get());
        }
    }

    /// Lets look-ups in what was packed as `packed` read that instead. Returns how many.
    size_t share(const CompressedWeights& weights,
                 const std::shared_ptr<const kernels::PackedLinear>& packed) {
        size_t shared = 0;
        if (!packed->has_integer_zero_points()) return 0;
        for (auto& [gather, values] : m_gathers) {
            if (!gather || values != weights.values.get()) continue;
            std::string reason;
            const auto table = find_compressed_weights(gather->input_value(0), reason);
            if (!table || table->scales != weights.scales ||
                table->zero_points != weights.zero_points)
                continue;
            replace_with(gather,
                         std::make_shared<QuantizedEmbedding>(gather->input_value(1), packed));
            gather = nullptr;  // lets go of the constants
            ++shared;
        }
        return shared;
    }

private:
    static bool looks_up_rows(const ov::Node& gather) {
        const auto axis = scalar(gather.input_value(2));
        const ov::element::Type ids = gather.get_input_element_type(1);
        return axis && *axis == 0 && gather.get_output_element_type(0) == ov::element::f32 &&
               (ids == ov::element::i32 || ids == ov::element::i64);
    }

    std::vector<std::pair<std::shared_ptr<ov::Node>, const ov::Node*>> m_gathers;
};

size_t replace(const Group& group, Embeddings& embeddings, const MappedFiles& files,
               kernels::WeightMemory& memory, kernels::ActivationPrecision activations) {
    QuantizedLinear::Attributes attributes;
    attributes.activations = activations;
    std::string name;
    size_t shared = 0;
    for (const auto& matmul : group) {
        std::string reason;
        const auto weights = find_compressed_weights(matmul->input_value(1), reason);
        attributes.weights.push_back(weights->pack(memory));
        shared += embeddings.share(*weights, attributes.weights.back());
        weights->release(files);
        name += (name.empty() ? "" : "+") + matmul->get_friendly_name();
    }
    // Asked for now: it may have been a MatMul that has been replaced meanwhile.
    const auto linear = std::make_shared<QuantizedLinear>(
        ov::OutputVector{group[0]->input_value(0)}, std::move(attributes));
    linear->set_friendly_name(name);
    for (size_t i = 0; i < group.size(); ++i) group[i]->output(0).replace(linear->output(i));
    return shared;
}

}  // namespace

QuantizedLinearReport use_quantized_linear(const std::shared_ptr<ov::Model>& model,
                                           kernels::ActivationPrecision activations) {
    QuantizedLinearReport report;
    kernels::WeightMemory memory;
    Embeddings embeddings(*model);
    const MappedFiles files;
    for (Group& group : find_groups(*model, report)) {
        report.num_shared_embeddings += replace(group, embeddings, files, memory, activations);
        report.num_matrices += group.size();
        ++report.num_nodes;
        group.clear();  // its constants go
    }
    if (report.num_nodes > 0) model->validate_nodes_and_infer_types();
    return report;
}

}  // namespace pagewheel
