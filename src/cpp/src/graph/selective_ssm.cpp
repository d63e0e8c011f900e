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
#include "openvino/op/reshape.hpp"
#include "openvino/op/slice.hpp"
#include "openvino/op/softplus.hpp"
#include "openvino/op/util/binary_elementwise_arithmetic.hpp"
#include "openvino/op/util/unary_elementwise_arithmetic.hpp"
#include "openvino/op/variadic_split.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

using ov::op::v0::Constant;
using Output = ov::Output<ov::Node>;

/// Inputs of OpenVINO's PagedSelectiveSSM: A [heads], dt [tokens, heads], B [tokens, groups,
/// state size], x [tokens, heads, head size], C like B, and the table of states.
namespace openvino_ssm {
enum : size_t { a = 0, dt = 1, b = 2, x = 3, c = 4, states = 5 };
}  // namespace openvino_ssm

size_t dimension(const ov::Node& node, size_t input, size_t dimension) {
    const ov::PartialShape& shape = node.get_input_partial_shape(input);
    if (shape.rank().is_dynamic() || shape.size() != 3 || shape[dimension].is_dynamic())
        throw NotServed(concat("its input ", input, " has shape ", shape));
    return size_t(shape[dimension].get_length());
}

Output with_shape(const Output& output, const std::vector<int64_t>& shape) {
    const auto pattern = Constant::create(ov::element::i64, {shape.size()}, shape);
    return std::make_shared<ov::op::v1::Reshape>(output, pattern, false);
}

/// Columns of rows f32 [tokens, width].
struct FoundColumns {
    Output rows;
    size_t first = 0;
};

/// Where a slice of the last dimension begins in it.
std::optional<size_t> first_column(const Output& part) {
    const auto node = part.get_node_shared_ptr();
    const size_t rank = size_t(part.get_partial_shape().size());
    if (const auto split = ov::as_type_ptr<ov::op::v1::VariadicSplit>(node)) {
        const auto lengths = integers(split->input_value(2));
        if (!lengths || !is_axis(split->input_value(1), int64_t(rank) - 1, rank)) return {};
        size_t first = 0;
        for (size_t i = 0; i < part.get_index(); ++i) {
            if ((*lengths)[i] < 0) return {};
            first += size_t((*lengths)[i]);
        }
        return first;
    }
    const auto slice = ov::as_type_ptr<ov::op::v8::Slice>(node);
    if (!slice || slice->get_input_size() != 5 ||
        !is_axis(slice->input_value(4), int64_t(rank) - 1, rank))
        return {};
    const auto first = integers(slice->input_value(1)), step = integers(slice->input_value(3));
    if (!first || first->size() != 1 || (*first)[0] < 0 || !step || (*step)[0] != 1) return {};
    return size_t((*first)[0]);
}

/// The rows that `width` columns of each token are cut out of, if `output` is a cut from rows of
/// pagewheel's; else nothing.
std::optional<FoundColumns> find_columns(const Output& output, size_t width) {
    const Output part = without_views(output);
    if (row_width(part.get_partial_shape()) != width) return {};
    const std::optional<size_t> first = first_column(part);
    const Output rows = first ? without_views(part.get_node()->input_value(0)) : part;
    const ov::PartialShape& shape = rows.get_partial_shape();
    if (rows.get_element_type() != ov::element::f32 || shape.rank().is_dynamic()) return {};
    const size_t whole = first ? row_width(part.get_node()->get_input_partial_shape(0)) : width;
    if (row_width(rows.get_partial_shape()) != whole) return {};
    return FoundColumns{rows, first.value_or(0)};
}

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
    std::shared_ptr<ov::Node> reader = only_reader(output);
    while (reader && is_view(*reader)) {
        output = reader->output(0);
        reader = only_reader(output);
    }
    return reader;
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
        output.replace(with_shape(fused, pattern));
    }

private:
    void take_columns(size_t input, size_t width) {
        const auto found = find_columns(m_inputs[input], width);
        if (!found) return;
        m_inputs[input] = as_matrix(found->rows);
        m_offsets[input] = found->first;
    }

    static Output as_matrix(const Output& rows) {
        if (rows.get_partial_shape().size() == 2) return rows;
        return with_shape(rows, {-1, int64_t(row_width(rows.get_partial_shape()))});
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
        m_inputs[SelectiveSsm::dt] = as_matrix(found->rows);
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
        m_inputs.insert(m_inputs.begin() + long(SelectiveSsm::gate), as_matrix(found->rows));
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
    config->heads = dimension(*node, openvino_ssm::x, 1);
    // optimum-intel leaves a product with -1 in the graph.
    const auto decays =
        value_of_constants(without_reshapes(node->input_value(openvino_ssm::a)), config->heads);
    if (!decays) throw NotServed("its decay rates are no constant");
    config->head_dim = dimension(*node, openvino_ssm::x, 2);
    config->groups = dimension(*node, openvino_ssm::b, 1);
    config->state_size = dimension(*node, openvino_ssm::b, 2);
    config->a = decays->cast_vector<float>();
    config->batch_invariant = options.batch_invariant;
    try {
        config->check();
    } catch (const InvalidArgument& error) {
        throw NotServed(error.what());
    }
    const auto make = [=](const Output& states, const Output& tables) {
        const auto rows = [&](size_t input, size_t width) {
            return with_shape(as_f32(node->input_value(input)), {-1, int64_t(width)});
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
        return with_shape(native, {-1, int64_t(config->heads), int64_t(config->head_dim)});
    };
    return {openvino_ssm::states, config->state_bytes(), make};
}

size_t fuse_convolution_biases(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops()) {
        const auto convolution = ov::as_type_ptr<ShortConvolution>(node);
        if (!convolution || !convolution->config().bias.empty()) continue;
        Output y = convolution->output(0);
        const auto add = sole_reader(y);
        const size_t channels = convolution->config().channels;
        const auto sum =
            add ? with_constant<ov::op::v1::Add>(add->output(0), {channels, 1}) : std::nullopt;
        if (!sum || sum->second != y) continue;
        auto config = std::make_shared<kernels::ShortConvolutionConfig>(convolution->config());
        config->bias = sum->first;
        add->output(0).replace(y);
        replace_with(convolution,
                     std::make_shared<ShortConvolution>(convolution->input_values(), config));
        ++fused;
    }
    return fused;
}

size_t fuse_selective_ssms(const std::shared_ptr<ov::Model>& model) {
    size_t fused = 0;
    for (const auto& node : model->get_ordered_ops())
        if (const auto ssm = ov::as_type_ptr<SelectiveSsm>(node)) {
            Fusion(ssm).run();
            ++fused;
        }
    return fused;
}

}  // namespace pagewheel
