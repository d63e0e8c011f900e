// What comes out of each operation, of rows of tokens, lengths and constants.
#pragma once

#include <cstddef>

#include "graph/token_reader.hpp"

namespace pagewheel {

/// Whether more than its inputs may decide what comes out of the node.
bool has_state(const ov::Node& node);

/// Of one output of a node that is no input of the model. UNKNOWN for an operation that no rule
/// knows. A new rule is a function and an entry of the table in token_rules.cpp; a case of it goes
/// to tests/cpp/fast_prefill_test.cpp.
TokenValue apply_token_rule(const TokenReader& reader, size_t output);

}  // namespace pagewheel
