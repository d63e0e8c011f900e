// The grammars of a tokenizer, which its copies share.
#pragma once

#include <memory>

#include "grammar/grammar_compiler.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel {

/// The same one for each call. It lives as long as its last owner; with the tokenizer gone no
/// grammar forces tokens any more. Throws InvalidArgument where the tokenizer's graph does
/// not tell the tokens' bytes.
std::shared_ptr<GrammarCompiler> grammar_compiler(const Tokenizer& tokenizer);

}  // namespace pagewheel
