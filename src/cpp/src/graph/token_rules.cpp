#include "graph/token_rules.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "graph/node_queries.hpp"
#include "graph/openvino_attention.hpp"
#include "openvino/op/concat.hpp"
#include "openvino/op/constant.hpp"
#include "openvino/op/gather_elements.hpp"
#include "openvino/op/log_softmax.hpp"
#include "openvino/op/matmul.hpp"
#include "openvino/op/reshape.hpp"
#include "openvino/op/softmax.hpp"
#include "openvino/op/util/arithmetic_reductions_keep_dims.hpp"
#include "openvino/op/util/binary_elementwise_arithmetic.hpp"
#include "openvino/op/util/binary_elementwise_bitwise.hpp"
#include "openvino/op/util/binary_elementwise_comparison.hpp"
#include "openvino/op/util/binary_elementwise_logical.hpp"
#include "openvino/op/util/broadcast_base.hpp"
#include "openvino/op/util/gather_base.hpp"
#include "openvino/op/util/logical_reduction_keep_dims.hpp"
#include "openvino/op/util/multi_subgraph_base.hpp"
#include "openvino/op/util/topk_base.hpp"
#include "openvino/op/util/unary_elementwise_arithmetic.hpp"
#include "ops/paged_attention.hpp"

namespace pagewheel {
namespace {

using Kind = TokenValue::Kind;

/// A model file may hold any size. This bound rejects nonsense and keeps products from overflowing.
constexpr int64_t max_elements = int64_t(1) << 40;

/// a * b; none if one is negative or the product is more than max_elements.
std::optional<int64_t> bounded_product(int64_t a, int64_t b) {
    if (a < 0 || b < 0 || (b > 0 && a > max_elements / b)) return {};
    return a * b;
}

/// The product of the extents' sizes from dimension `begin` on.
std::optional<int64_t> product(const Extents& extents, size_t begin = 0) {
    std::optional<int64_t> product = 1;
    for (size_t i = begin; i < extents.size() && product; ++i)
        product = bounded_product(*product, extents[i].size);
    return product;
}

/// What dimensions become where two tensors meet element by element.
MaybeExtents broadcast(const Extents& a, const Extents& b) {
    if (a.size() < b.size()) return broadcast(b, a);
    Extents both = a;
    for (size_t i = 0; i < b.size(); ++i) {
        Extent& one = both[a.size() - 1 - i];
        const Extent& other = b[b.size() - 1 - i];
        if (one == Extent{}) one = other;
        if (!(one == other) && !(other == Extent{})) return {};
    }
    return both;
}

// ---- Rules: what comes out of an operation, of all its outputs unless they differ

TokenValue elementwise(const TokenReader& reader) {
    if (reader.node().get_autob().m_type == ov::op::AutoBroadcastType::PDPD) return {};
    MaybeExtents all = Extents{};
    for (size_t i = 0; i < reader.node().get_input_size() && all; ++i) {
        const MaybeExtents each = reader.extents(i);
        all = each ? broadcast(*all, *each) : each;
    }
    return rows_of(all);
}

/// The dimensions of its first input, if it works along one of them without tokens.
TokenValue along(const TokenReader& reader, int64_t axis) {
    const MaybeExtents extents = reader.extents(0);
    if (!extents) return {};
    const auto rank = int64_t(extents->size());
    const int64_t counted = axis < 0 ? axis + rank : axis;
    if (counted < 0 || counted >= rank || (*extents)[size_t(counted)].tokens) return {};
    return rows_of(extents);
}

/// Elements keep their order, so tokens stay tokens if as much lies behind each of them.
TokenValue reshape(const TokenReader& reader) {
    const MaybeExtents from = reader.extents(0), pattern = reader.shape(1);
    if (!from || !pattern || num_token_extents(*from) != 1) return {};
    const bool zero_copies = reader.as<ov::op::v1::Reshape>().get_special_zero();
    Extents to = *pattern;
    size_t open = to.size();
    for (size_t i = 0; i < to.size(); ++i) {
        if (zero_copies && to[i].size == 0) {
            if (i >= from->size()) return {};
            to[i] = (*from)[i];
        }
        if (to[i].size == -1) open = i;
    }
    if (open < to.size()) {
        to[open] = {1, num_token_extents(to) == 0};
        const auto known = product(to), all = product(*from);
        if (!known || !all || *known == 0 || *all % *known != 0) return {};
        to[open].size = *all / *known;
    }
    if (num_token_extents(to) != 1) return {};
    const auto behind = [](const Extents& extents) {
        return product(extents, token_axis(extents) + 1);
    };
    const bool same = product(to) && product(to) == product(*from) && behind(to) == behind(*from);
    return same ? rows_of(std::move(to)) : TokenValue();
}

/// What comes out of an assignment, several operations of which `reader` has the last one.
TokenValue slice_assign(const TokenReader& reader, const SliceAssign& assign) {
    const TokenValue &into = reader.value(assign.into), &update = reader.value(assign.update);
    if (!into.is_rows() || !update.is_rows() ||
        into.extents != reader.value(assign.shaped).extents || assign.axis >= into.extents.size() ||
        into.extents[assign.axis].tokens)
        return {};
    Extents assigned = into.extents;
    Extent& extent = assigned[assign.axis];
    extent.size = std::min(assign.end, extent.size) - assign.begin;
    return update.extents == assigned ? into : TokenValue();
}

TokenValue transpose(const TokenReader& reader) {
    const MaybeExtents from = reader.extents(0);
    if (!from) return {};
    auto order = reader.axes(1, from->size());
    if (!order) return {};
    if (order->empty()) {
        order->resize(from->size());
        std::iota(order->rbegin(), order->rend(), size_t(0));
    }
    Extents to;
    for (const size_t axis : *order) to.push_back((*from)[axis]);
    return rows_of(std::move(to));
}

TokenValue unsqueeze(const TokenReader& reader) {
    if (reader.value(0).kind == Kind::SHAPE) return reader.value(0);
    MaybeExtents extents = reader.extents(0);
    const auto listed = reader.integers(1);
    if (!extents || !listed) return {};
    auto axes = reader.axes(1, extents->size() + listed->size());
    if (!axes) return {};
    std::sort(axes->begin(), axes->end());
    for (const size_t axis : *axes) extents->insert(extents->begin() + int64_t(axis), Extent{});
    return rows_of(extents);
}

TokenValue squeeze(const TokenReader& reader) {
    if (reader.value(0).kind == Kind::SHAPE) return reader.value(0);
    MaybeExtents extents = reader.extents(0);
    if (!extents || reader.node().get_input_size() < 2) return {};
    auto axes = reader.axes(1, extents->size());
    if (!axes) return {};
    std::sort(axes->rbegin(), axes->rend());
    axes->erase(std::unique(axes->begin(), axes->end()), axes->end());
    for (const size_t axis : *axes) {
        if (!((*extents)[axis] == Extent{})) return {};
        extents->erase(extents->begin() + int64_t(axis));
    }
    return rows_of(extents);
}

TokenValue tile(const TokenReader& reader) {
    MaybeExtents extents = reader.extents(0);
    const auto repeats = reader.integers(1);
    if (!extents || !repeats) return {};
    while (extents->size() < repeats->size()) extents->insert(extents->begin(), Extent{});
    for (size_t i = 0; i < repeats->size(); ++i) {
        Extent& extent = (*extents)[extents->size() - 1 - i];
        const auto tiled = bounded_product(extent.size, (*repeats)[repeats->size() - 1 - i]);
        if (!tiled) return {};
        extent.size = *tiled;
    }
    return rows_of(extents);
}

TokenValue broadcast_to_shape(const TokenReader& reader) {
    using Mode = ov::op::BroadcastType;
    const MaybeExtents from = reader.extents(0), target = reader.shape(1);
    const auto* node = dynamic_cast<const ov::op::util::BroadcastBase*>(&reader.node());
    const auto mode = node ? node->get_broadcast_spec().m_type : Mode::EXPLICIT;
    if (!from || !target || (mode != Mode::NUMPY && mode != Mode::BIDIRECTIONAL)) return {};
    MaybeExtents both = broadcast(*from, *target);
    if (mode == Mode::NUMPY && both != target) return {};
    return rows_of(std::move(both));
}

TokenValue concat_values(const TokenReader& reader) {
    const size_t inputs = reader.node().get_input_size();
    Extents joined;
    for (size_t i = 0; i < inputs; ++i)
        if (reader.value(i).kind == Kind::SHAPE) {
            for (size_t j = 0; j < inputs; ++j) {
                const MaybeExtents each = reader.shape(j);
                if (!each || joined.size() + each->size() > max_lengths) return {};
                joined.insert(joined.end(), each->begin(), each->end());
            }
            return {Kind::SHAPE, joined};
        }
    const int64_t axis = reader.as<ov::op::v0::Concat>().get_axis();
    joined = along(reader, axis).extents;
    if (num_token_extents(joined) != 1) return {};
    const size_t counted = size_t(axis < 0 ? axis + int64_t(joined.size()) : axis);
    for (size_t i = 1; i < inputs; ++i) {
        const MaybeExtents each = reader.extents(i);
        if (!each || each->size() != joined.size() || token_axis(*each) != token_axis(joined))
            return {};
        joined[counted].size += std::min((*each)[counted].size, max_elements);
    }
    return rows_of(std::move(joined));
}

/// One output of Split, VariadicSplit or Slice: its first input, less along some axes.
TokenValue cut(const TokenReader& reader, size_t output, const std::vector<size_t>& axes) {
    MaybeExtents extents = reader.extents(0);
    if (!extents) return {};
    for (const size_t axis : axes) {
        const std::optional<Extent> left = reader.static_extent(output, axis);
        if ((*extents)[axis].tokens || !left) return {};
        (*extents)[axis] = *left;
    }
    return rows_of(extents);
}

TokenValue split(const TokenReader& reader, size_t output) {
    const MaybeExtents extents = reader.extents(0);
    const auto axes = extents ? reader.axes(1, extents->size()) : std::nullopt;
    return axes ? cut(reader, output, *axes) : TokenValue();
}

/// Along tokens only all of them: up to their number, or as far as there is anything.
TokenValue slice(const TokenReader& reader) {
    constexpr int64_t no_end = std::numeric_limits<int32_t>::max();
    const MaybeExtents extents = reader.extents(0);
    if (!extents || reader.node().get_input_size() != 5) return {};
    const auto starts = reader.integers(1), steps = reader.integers(3);
    const MaybeExtents ends = reader.shape(2);
    const auto axes = reader.axes(4, extents->size());
    if (!starts || !ends || !steps || !axes || starts->size() != axes->size() ||
        ends->size() != axes->size() || steps->size() != axes->size())
        return {};
    std::vector<size_t> shortened;
    for (size_t i = 0; i < axes->size(); ++i) {
        const Extent &extent = (*extents)[(*axes)[i]], &end = (*ends)[i];
        const bool whole = (*starts)[i] == 0 && (*steps)[i] == 1 &&
                           (end == extent || (!end.tokens && end.size >= no_end));
        if (!whole && end.tokens) return {};
        if (!whole) shortened.push_back((*axes)[i]);
    }
    return cut(reader, 0, shortened);
}

TokenValue gather(const TokenReader& reader) {
    const MaybeExtents indices = reader.extents(1);
    const auto axis_input = reader.integers(2);
    const auto* node = ov::as_type<const ov::op::util::GatherBase>(&reader.node());
    if (!node || node->get_batch_dims() != 0 || !axis_input || axis_input->size() != 1) return {};
    if (reader.value(0).kind == Kind::SHAPE) {
        const Extents& elements = reader.value(0).extents;
        const auto chosen = reader.axes(1, elements.size());
        if (!chosen) return {};
        TokenValue value{Kind::SHAPE, {}};
        for (const size_t each : *chosen) value.extents.push_back(elements[each]);
        return value;
    }
    MaybeExtents extents = reader.extents(0);
    if (!extents || !indices) return {};
    const auto axes = reader.axes(2, extents->size());
    if (!axes || (*extents)[(*axes)[0]].tokens) return {};
    const auto at = extents->begin() + int64_t((*axes)[0]);
    extents->insert(extents->erase(at), indices->begin(), indices->end());
    return rows_of(extents);
}

/// Data and indices have as many dimensions: a token's elements are picked from or put into a
/// token's.
TokenValue gather_elements(const TokenReader& reader) {
    const TokenValue along_axis = along(reader, reader.as<ov::op::v6::GatherElements>().get_axis());
    const MaybeExtents indices = reader.extents(1);
    if (!along_axis.is_rows() || !indices || indices->size() != along_axis.extents.size() ||
        token_axis(*indices) != along_axis.axis() ||
        !((*indices)[along_axis.axis()] == along_axis.extents[along_axis.axis()]))
        return {};
    return rows_of(indices);
}

TokenValue scatter_elements(const TokenReader& reader) {
    const auto axis = reader.integers(3);
    if (!axis || axis->size() != 1) return {};
    TokenValue into = along(reader, (*axis)[0]);
    if (!into.is_rows()) return {};
    for (const size_t input : {1, 2}) {
        const MaybeExtents each = reader.extents(input);
        if (!each || each->size() != into.extents.size() ||
            !((*each)[into.axis()] == into.extents[into.axis()]))
            return {};
    }
    return into;
}

TokenValue top_k(const TokenReader& reader) {
    const auto* node = ov::as_type<const ov::op::util::TopKBase>(&reader.node());
    if (!node || !reader.extents(0)) return {};
    return cut(reader, 0, {size_t(node->get_axis())});
}

TokenValue reduce(const TokenReader& reader) {
    const MaybeExtents extents = reader.extents(0);
    const auto axes = extents ? reader.axes(1, extents->size()) : std::nullopt;
    if (!axes) return {};
    bool keeps = false;
    if (const auto* one =
            ov::as_type<const ov::op::util::ArithmeticReductionKeepDims>(&reader.node()))
        keeps = one->get_keep_dims();
    else if (const auto* other =
                 ov::as_type<const ov::op::util::LogicalReductionKeepDims>(&reader.node()))
        keeps = other->get_keep_dims();
    else
        return {};
    Extents left;
    for (size_t i = 0; i < extents->size(); ++i) {
        const bool reduced = std::find(axes->begin(), axes->end(), i) != axes->end();
        if (reduced && (*extents)[i].tokens) return {};
        if (!reduced) left.push_back((*extents)[i]);
        if (reduced && keeps) left.push_back({});
    }
    return rows_of(std::move(left));
}

/// Means and variances over dimensions without tokens.
TokenValue normalize(const TokenReader& reader) {
    const MaybeExtents extents = reader.extents(0);
    const bool lists_axes = reader.node().get_input_size() == 2;
    const auto axes = extents && lists_axes ? reader.axes(1, extents->size()) : std::nullopt;
    if (!axes) return {};
    for (const size_t axis : *axes)
        if ((*extents)[axis].tokens) return {};
    return rows_of(extents);
}

/// Rows of one side meet columns of the other; tokens may be either, or lie in front of both.
TokenValue matmul(const TokenReader& reader) {
    const auto& node = reader.as<ov::op::v0::MatMul>();
    MaybeExtents a = reader.extents(0), b = reader.extents(1);
    if (!a || !b || a->size() < 2 || b->size() < 2) return {};
    if (node.get_transpose_a()) std::swap((*a)[a->size() - 1], (*a)[a->size() - 2]);
    if (node.get_transpose_b()) std::swap((*b)[b->size() - 1], (*b)[b->size() - 2]);
    const Extent inner = a->back(), columns = b->back(), others = (*a)[a->size() - 2];
    if (inner.tokens || (*b)[b->size() - 2].tokens) return {};
    a->resize(a->size() - 2);
    b->resize(b->size() - 2);
    MaybeExtents product = broadcast(*a, *b);
    if (!product) return {};
    product->push_back(others);
    product->push_back(columns);
    return rows_of(product);
}

TokenValue shape_of(const TokenReader& reader) {
    const MaybeExtents extents = reader.extents(0);
    return extents ? TokenValue{Kind::SHAPE, *extents} : TokenValue();
}

/// Lengths whose elements stay what they are, in another type of integers or another shape.
TokenValue same_lengths(const TokenReader& reader) {
    const ov::element::Type& type = reader.node().get_output_element_type(0);
    const bool whole = type == ov::element::i64 || type == ov::element::i32;
    return whole ? reader.value(0) : TokenValue();
}

TokenValue attention(const TokenReader& reader, size_t output) {
    const MaybeExtents query = reader.extents(PagedAttention::query);
    const auto width = reader.static_extent(0, 1);
    if (output != 0 || !query || query->size() != 2 || !width) return {};
    return rows_of(Extents{(*query)[0], *width});
}

/// An operation of pagewheel's that keeps states: a row of each output for each of its input's.
TokenValue rows_with_state(const TokenReader& reader, size_t output) {
    const MaybeExtents rows = reader.extents(0);
    if (!rows || rows->size() != 2) return {};
    const auto& op = dynamic_cast<const NativeOp&>(reader.node());
    return rows_of(Extents{(*rows)[0], {int64_t(op.output_width(output)), false}});
}

// ---- Which rule is whose

using Rule = std::function<TokenValue(const TokenReader&, size_t output)>;

Rule of_all_outputs(TokenValue (*rule)(const TokenReader&)) {
    return [rule](const TokenReader& reader, size_t) { return rule(reader); };
}

template <class Op>
TokenValue along_own_axis(const TokenReader& reader) {
    return along(reader, int64_t(reader.as<Op>().get_axis()));
}

TokenValue softmax(const TokenReader& reader) {
    if (ov::is_type<ov::op::v8::Softmax>(&reader.node()))
        return along_own_axis<ov::op::v8::Softmax>(reader);
    return ov::is_type<ov::op::v1::Softmax>(&reader.node())
               ? along_own_axis<ov::op::v1::Softmax>(reader)
               : TokenValue();
}

const std::unordered_map<std::string, Rule>& rules() {
    static const std::unordered_map<std::string, Rule> rules = [] {
        std::unordered_map<std::string, Rule> table{
            {"Reshape", of_all_outputs(reshape)},
            {"Transpose", of_all_outputs(transpose)},
            {"Unsqueeze", of_all_outputs(unsqueeze)},
            {"Squeeze", of_all_outputs(squeeze)},
            {"Tile", of_all_outputs(tile)},
            {"Broadcast", of_all_outputs(broadcast_to_shape)},
            {"Concat", of_all_outputs(concat_values)},
            {"Split", split},
            {"VariadicSplit", split},
            {"Slice", of_all_outputs(slice)},
            {"Gather", of_all_outputs(gather)},
            {"GatherElements", of_all_outputs(gather_elements)},
            {"ScatterElementsUpdate", of_all_outputs(scatter_elements)},
            {"TopK", of_all_outputs(top_k)},
            {"Softmax", of_all_outputs(softmax)},
            {"LogSoftmax", of_all_outputs(along_own_axis<ov::op::v5::LogSoftmax>)},
            {"MVN", of_all_outputs(normalize)},
            {"MatMul", of_all_outputs(matmul)},
            {"ShapeOf", of_all_outputs(shape_of)},
            {"PagedAttentionExtension", attention},
            {"PagedAttention", attention},
        };
        for (const char* name : {"Convert", "Select", "Swish", "Gelu", "Clamp", "SoftPlus", "Mish",
                                 "HSwish", "Relu", "Elu", "LogicalNot"})
            table.emplace(name, of_all_outputs(elementwise));
        return table;
    }();
    return rules;
}

bool is_elementwise(const ov::Node& node) {
    using namespace ov::op::util;
    return ov::is_type<UnaryElementwiseArithmetic>(&node) ||
           ov::is_type<BinaryElementwiseArithmetic>(&node) ||
           ov::is_type<BinaryElementwiseBitwise>(&node) ||
           ov::is_type<BinaryElementwiseComparison>(&node) ||
           ov::is_type<BinaryElementwiseLogical>(&node);
}

TokenValue value_of(const TokenReader& reader, size_t output) {
    const ov::Node& node = reader.node();
    if (ov::is_type<ov::op::v0::Constant>(&node)) return {Kind::CONSTANT, {}};
    bool constant = node.get_input_size() > 0 && !has_state(node), unknown = has_state(node);
    for (size_t i = 0; i < node.get_input_size(); ++i) {
        constant = constant && reader.value(i).kind == Kind::CONSTANT;
        unknown = unknown || reader.value(i).kind == Kind::UNKNOWN;
    }
    if (constant) return {Kind::CONSTANT, {}};
    if (const auto assign = find_slice_assign(node)) return slice_assign(reader, *assign);
    if (keeps_state(node)) return rows_with_state(reader, output);
    if (unknown && !is_paged_attention(node)) return {};
    const std::string type = node.get_type_name();
    const bool keeps_elements = type == "Convert" || type == "Reshape";
    if (keeps_elements && reader.value(0).kind == Kind::SHAPE) return same_lengths(reader);
    if (is_elementwise(node)) return elementwise(reader);
    if (type.rfind("Reduce", 0) == 0) return reduce(reader);
    const auto rule = rules().find(type);
    return rule == rules().end() ? TokenValue() : rule->second(reader, output);
}

/// Lengths are a list of them or one: in more dimensions their order says less than rules ask for.
bool is_list(const ov::PartialShape& shape, size_t elements) {
    if (shape.is_dynamic() || shape.size() > 1) return false;
    return ov::shape_size(shape.to_shape()) == elements;
}

}  // namespace

bool has_state(const ov::Node& node) {
    static const std::set<std::string> types{"ReadValue", "Assign", "RandomUniform", "Multinomial"};
    return types.count(node.get_type_name()) != 0 ||
           ov::as_type<const ov::op::util::MultiSubGraphOp>(&node);
}

TokenValue apply_token_rule(const TokenReader& reader, size_t output) {
    TokenValue value = value_of(reader, output);
    const bool lengths = value.kind == Kind::SHAPE;
    if (lengths && !is_list(reader.node().get_output_partial_shape(output), value.extents.size()))
        return {};
    return value;
}

}  // namespace pagewheel
