// What comes out of each operation, of rows of tokens, lengths and constants: what rules ask of a
// node and what it reads, and the rules. Internal to token_layout and the passes beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "graph/token_layout.hpp"
#include "openvino/core/node.hpp"

namespace pagewheel {

/// None where they are not known.
using MaybeExtents = std::optional<Extents>;
using TokenValues = std::map<ov::Output<ov::Node>, TokenValue>;

/// Lengths of dimensions in one value. More is no shape.
inline constexpr size_t max_lengths = 64;

size_t num_token_extents(const Extents& extents);

/// The dimension along which tokens lie; extents.size() if none.
size_t token_axis(const Extents& extents);

/// A value of such dimensions that is computed token by token. Without tokens it is a constant,
/// with tokens along several dimensions unknown.
TokenValue rows_of(Extents extents);
TokenValue rows_of(MaybeExtents extents);

/// A node, what it reads, and questions about that. A rule asks these and says what comes out.
class TokenReader {
public:
    /// `values` are those of all nodes before.
    TokenReader(const ov::Node& node, const TokenValues& values) : m_node(node), m_values(values) {}

    const ov::Node& node() const { return m_node; }
    template <class Op>
    const Op& as() const {
        return *ov::as_type<const Op>(&m_node);
    }
    const TokenValue& value(size_t input) const { return value(m_node.input_value(input)); }
    const TokenValue& value(const ov::Output<ov::Node>& earlier) const {
        return m_values.at(earlier);
    }

    /// The input's dimensions, if they are known.
    MaybeExtents extents(size_t input) const;
    /// The input's elements, if they are lengths of dimensions or constants.
    MaybeExtents shape(size_t input) const;
    /// The elements of shape(), if none counts tokens.
    std::optional<std::vector<int64_t>> integers(size_t input) const;
    /// The dimensions [0, rank) that the input lists, the negative ones from the end.
    std::optional<std::vector<size_t>> axes(size_t input, size_t rank) const;
    /// The extent that the output has along `axis` by its shape.
    std::optional<Extent> static_extent(size_t output, size_t axis) const;

private:
    const ov::Node& m_node;
    const TokenValues& m_values;
};

/// Whether more than its inputs may decide what comes out of the node.
bool has_state(const ov::Node& node);

/// What comes out of one output of a node that is no input of the model. UNKNOWN for an operation
/// that no rule knows. A new rule is a function and an entry of the table in token_rules.cpp; a
/// case of it goes to tests/cpp/fast_prefill_test.cpp.
TokenValue apply_token_rule(const TokenReader& reader, size_t output);

// ---- Assignments to slices, as PyTorch's are exported

/// `into` with elements [begin, end) along dimension `axis` taken from `update`; `end` may lie
/// behind the last element.
struct SliceAssign {
    ov::Output<ov::Node> into, update;
    ov::Output<ov::Node> shaped;  ///< whose shape the indices were made of: must be that of `into`
    size_t axis = 0;
    int64_t begin = 0, end = 0;
};

/// The assignment that `node` ends, in the form that OpenVINO gives `x[begin:end] = update`:
///
///     indices = Reshape(Slice(Reshape(Range(0, ReduceProd(ShapeOf(shaped)), 1),
///                                     ShapeOf(shaped))), [-1, 1])
///     Reshape(ScatterNDUpdate(Reshape(into, [-1]), indices, Reshape(update, [-1])),
///             ShapeOf(shaped))
///
/// None if it is something else.
std::optional<SliceAssign> find_slice_assign(const ov::Node& node);

}  // namespace pagewheel
