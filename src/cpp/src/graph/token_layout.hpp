// Where the tokens of a batch lie in the values of a decoder's graph.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "openvino/core/model.hpp"

namespace pagewheel {

/// How long a dimension is: `size`, or `size` times the number of tokens. In the second case all
/// tokens lie along it, one after the other, `size` times.
struct Extent {
    int64_t size = 1;
    bool tokens = false;

    friend bool operator==(const Extent& a, const Extent& b) {
        return a.size == b.size && a.tokens == b.tokens;
    }
};
using Extents = std::vector<Extent>;

/// What a value has to do with the tokens of the batch.
struct TokenValue {
    enum class Kind {
        CONSTANT,  ///< the same for any tokens
        ROWS,      ///< what is a token's depends on what is that token's in the inputs alone
        SHAPE,     ///< lengths of dimensions
        UNKNOWN    ///< anything else
    };
    Kind kind = Kind::UNKNOWN;
    /// ROWS: its dimensions, of which exactly one has tokens. SHAPE: its elements.
    Extents extents;

    bool is_rows() const { return kind == Kind::ROWS; }
    /// The dimension of rows along which tokens lie.
    size_t axis() const;
    /// Whether its elements change with the number of tokens.
    bool counts_tokens() const;
};

/// Finds what is computed token by token. A graph of such operations gives for some of the tokens
/// what it gives for them among all. Attention is taken for such an operation of its queries: what
/// else it reads is up to the caller.
///
/// Knows the operations that decoders are made of; what others compute is UNKNOWN.
class TokenLayouts {
public:
    /// `model` is ragged, as apply_paged_attention() leaves it.
    explicit TokenLayouts(const ov::Model& model);

    /// UNKNOWN for what was not in the graph.
    const TokenValue& of(const ov::Output<ov::Node>& output) const;

private:
    std::map<ov::Output<ov::Node>, TokenValue> m_values;
};

}  // namespace pagewheel
