// Mamba 2's recurrence: pagewheel's in the place of OpenVINO's, with what stands around it.
#include "ops/state_ops.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "graph/function_patterns.hpp"
#include "graph/node_queries.hpp"
#include "graph/passes.hpp"
#include "graph/state_operations.hpp"
#include "openvino/op/add.hpp"
#include "openvino/op/clamp.hpp"
#include "openvino/op/multiply.hpp"
#include "openvino/op/softplus.hpp"
#include "openvino/op/util/binary_elementwise_arithmetic.hpp"
#include "openvino/op/util/unary_elementwise_arithmetic.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using Output = ov::Output<ov::Node>;

/// Inputs of OpenVINO's PagedSelectiveSSM: A [heads], dt [tokens, heads], B [tokens, groups,
/// state size], x [tokens, heads, head size], C like B, and the table of states.
namespace openvino_ssm {
enum : size_t { a = 0, dt = 1, b = 2, x = 3, c = 4, states = 5 };
}  // namespace openvino_ssm

/// The constant and the other operand, if `output` is of the Op and has a constant whose last
/// dimensions are these and all others 1.
template <class Op>
std::optional<std::pair<std::vector<float>, Output>> with_constant(const Output& output,
                                                                   const ov::Shape& shape) {
    return split_operands<Op>(
        output, [&](const Output& operand) -> std::optional<std::vector<float>> {
            const auto constant = constant_under(without_reshapes(operand));
            const ov::PartialShape& given = operand.get_partial_shape();
            if (!constant || given.is_dynamic() || given.size() < shape.size() ||
                ov::shape_size(constant->get_shape()) != ov::shape_size(shape) ||
                !std::equal(shape.rbegin(), shape.rend(), given.to_shape().rbegin()))
                return {};
            return constant->cast_vector<float>();
        });
}

/// The only reader of `output`, or of views of it; `output` becomes what it reads.
std::shared_ptr<ov::Node> sole_reader(Output& output) {
    output = through_views(output);
    return only_reader(output);
}

/// Whether rows can take the place of `output`: no dimension but the first is dynamic.
bool is_made_of_rows(const Output& output) {
    const ov::PartialShape& shape = output.get_partial_shape();
    return shape.rank().is_static() && shape.size() > 1 &&
           std::all_of(shape.begin() + 1, shape.end(),
                       [](const ov::Dimension& size) { return size.is_static(); });
}

/// A node and its rewriting. Each step gives a node that computes more.
class Fusion {
public:
    explicit Fusion(const std::shared_ptr<SelectiveSsm>& node)
        : m_node(node),
          m_config(node->config()),
          m_offsets(node->offsets()),
          m_inputs(node->input_values()),
          m_x(m_inputs[SelectiveSsm::x]) {
        m_inner = m_config.heads * m_config.head_dim;
    }

    void run() {
        const size_t states = m_config.groups * m_config.state_size;
        take_columns(SelectiveSsm::x, m_inner);
        take_columns(SelectiveSsm::b, states);
        take_columns(SelectiveSsm::c, states);
        take_steps();
        Output output = m_node->output(0);
        if (const Output skipped = skip(output); skipped.get_node()) output = skipped;
        if (const Output gated = gate(output); gated.get_node()) output = gated;
        const auto fused = std::make_shared<SelectiveSsm>(
            m_inputs, std::make_shared<kernels::SelectiveSsmConfig>(std::move(m_config)),
            m_offsets);
        fused->set_friendly_name(m_node->get_friendly_name());
        // What follows reads the rows in the shape that they had there.
        const ov::PartialShape shape = output.get_partial_shape();
        if (output == m_node->output(0)) return output.replace(fused);
        std::vector<int64_t> pattern{-1};
        for (size_t i = 1; i < shape.size(); ++i) pattern.push_back(shape[i].get_length());
        output.replace(reshaped_to(fused, pattern));
    }

private:
    void take_columns(size_t input, size_t width) {
        const auto found = find_columns(m_inputs[input], width);
        if (!found) return;
        m_inputs[input] = as_rows(found->rows);
        m_offsets[input] = found->first;
    }

    /// step = clamp(softplus(dt + bias)), with or without the clamp.
    void take_steps() {
        Output steps = without_views(m_inputs[SelectiveSsm::dt]);
        float least = 0, most = __builtin_inff();
        if (const auto clamp = as<ov::op::v0::Clamp>(steps)) {
            least = float(clamp->get_min()), most = float(clamp->get_max());
            steps = without_views(clamp->input_value(0));
        }
        const auto softplus = as<ov::op::v4::SoftPlus>(steps);
        if (!softplus) return;
        const auto sum = with_constant<ov::op::v1::Add>(without_views(softplus->input_value(0)),
                                                        {m_config.heads});
        if (!sum) return;
        const auto found = find_columns(sum->second, m_config.heads);
        if (!found || !(least <= most)) return;
        m_config.dt_bias = sum->first;
        m_config.dt_min = least, m_config.dt_max = most;
        m_inputs[SelectiveSsm::dt] = as_rows(found->rows);
        m_offsets[SelectiveSsm::dt] = found->first;
    }

    /// y + d x.
    Output skip(Output y) {
        const auto add = ov::as_type_ptr<ov::op::v1::Add>(sole_reader(y));
        if (!add || !is_made_of_rows(add->output(0))) return {};
        const size_t other = add->input_value(0) == y ? 1 : 0;
        const auto product = with_constant<ov::op::v1::Multiply>(
            without_views(add->input_value(other)), {m_config.heads, 1});
        if (!product) return {};
        const auto found = find_columns(product->second, m_inner);
        const auto own = find_columns(m_x, m_inner);
        if (!found || !own || found->rows != own->rows || found->first != own->first) return {};
        m_config.d = product->first;
        return add->output(0);
    }

    /// y silu(gate).
    Output gate(Output y) {
        const auto product = ov::as_type_ptr<ov::op::v1::Multiply>(sole_reader(y));
        if (!product || m_node->has_gate() || !is_made_of_rows(product->output(0))) return {};
        const size_t other = product->input_value(0) == y ? 1 : 0;
        const Output gate = silu_input(without_views(product->input_value(other)));
        const auto found = gate.get_node() ? find_columns(gate, m_inner) : std::nullopt;
        if (!found) return {};
        m_offsets[SelectiveSsm::gate] = found->first;
        m_inputs.insert(m_inputs.begin() + long(SelectiveSsm::gate), as_rows(found->rows));
        return product->output(0);
    }

    std::shared_ptr<SelectiveSsm> m_node;
    kernels::SelectiveSsmConfig m_config;
    StateOp::Offsets m_offsets;
    ov::OutputVector m_inputs;
    Output m_x;  // as it was
    size_t m_inner = 0;
};

/// What `output` always is, of at most `most` elements: a constant, or what a few nodes compute of
/// constants, element by element. Null if it is another value.
std::shared_ptr<Constant> value_of_constants(const Output& output, size_t most, size_t nodes = 6) {
    const auto node = output.get_node_shared_ptr();
    if (const auto constant = ov::as_type_ptr<Constant>(node)) return constant;
    const bool by_element = ov::is_type<ov::op::v0::Convert>(node) ||
                            ov::is_type<ov::op::util::UnaryElementwiseArithmetic>(node) ||
                            ov::is_type<ov::op::util::BinaryElementwiseArithmetic>(node);
    if (nodes == 0 || !by_element) return nullptr;
    ov::TensorVector inputs, outputs;
    std::vector<std::shared_ptr<Constant>> held;  // whose memory the inputs are
    for (const auto& input : node->input_values()) {
        const auto constant = value_of_constants(input, most, nodes - 1);
        if (!constant) return nullptr;
        held.push_back(constant);
        inputs.push_back(constant->get_tensor_view());
    }
    const ov::PartialShape& shape = output.get_partial_shape();
    if (shape.is_dynamic() || ov::shape_size(shape.to_shape()) > most) return nullptr;
    outputs.emplace_back(output.get_element_type(), shape.to_shape());
    if (!node->evaluate(outputs, inputs)) return nullptr;
    return std::make_shared<Constant>(outputs[0]);
}

}  // namespace

StateOperation selective_ssm_operation(const std::shared_ptr<ov::Node>& node,
                                       const NativeAttentionOptions& options) {
    auto config = std::make_shared<kernels::SelectiveSsmConfig>();
    config->heads = dimension_at(*node, openvino_ssm::x, 3, 1);
    // optimum-intel leaves a product with -1 in the graph.
    const auto decays =
        value_of_constants(without_reshapes(node->input_value(openvino_ssm::a)), config->heads);
    if (!decays) throw NotServed("its decay rates are no constant");
    config->head_dim = dimension_at(*node, openvino_ssm::x, 3, 2);
    config->groups = dimension_at(*node, openvino_ssm::b, 3, 1);
    config->state_size = dimension_at(*node, openvino_ssm::b, 3, 2);
    config->a = decays->cast_vector<float>();
    config->batch_invariant = options.batch_invariant;
    check_served(*config);
    const auto make = [=](const Output& states, const Output& tables) {
        const auto rows = [&](size_t input, size_t width) {
            return reshaped_to(as_f32(node->input_value(input)), {-1, int64_t(width)});
        };
        const size_t width = config->groups * config->state_size;
        const ov::OutputVector inputs{rows(openvino_ssm::x, config->heads * config->head_dim),
                                      rows(openvino_ssm::b, width),
                                      rows(openvino_ssm::c, width),
                                      rows(openvino_ssm::dt, config->heads),
                                      states,
                                      tables};
        const auto native = std::make_shared<SelectiveSsm>(inputs, config);
        native->set_friendly_name(node->get_friendly_name());
        return reshaped_to(native, {-1, int64_t(config->heads), int64_t(config->head_dim)});
    };
    return {openvino_ssm::states, config->state_bytes(), make};
}

size_t fuse_convolution_biases(const std::shared_ptr<ov::Model>& model) {
    return count_each<ShortConvolution>(*model, [](const auto& convolution) {
        if (!convolution->config().bias.empty()) return false;
        Output y = convolution->output(0);
        const auto add = sole_reader(y);
        const size_t channels = convolution->config().channels;
        const auto sum =
            add ? with_constant<ov::op::v1::Add>(add->output(0), {channels, 1}) : std::nullopt;
        if (!sum || sum->second != y) return false;
        auto config = std::make_shared<kernels::ShortConvolutionConfig>(convolution->config());
        config->bias = sum->first;
        add->output(0).replace(y);
        replace_with(convolution,
                     std::make_shared<ShortConvolution>(convolution->input_values(), config));
        return true;
    });
}

size_t fuse_selective_ssms(const std::shared_ptr<ov::Model>& model) {
    return count_each<SelectiveSsm>(*model, [](const auto& ssm) {
        Fusion(ssm).run();
        return true;
    });
}

}  // namespace pagewheel
