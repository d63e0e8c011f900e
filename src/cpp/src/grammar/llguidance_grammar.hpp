// Grammars compiled by llguidance.
#pragma once

#include <memory>

#include "grammar/grammar.hpp"
#include "grammar/grammar_limits.hpp"
#include "grammar/llguidance_tokenizer.hpp"

namespace pagewheel::llguidance {

/// On the calling thread, whatever time and stack it takes. Throws GrammarError.
std::shared_ptr<CompiledGrammar> compile(std::shared_ptr<const SharedTokenizer> tokenizer,
                                         const GrammarSource& source, const GrammarLimits& limits);

}  // namespace pagewheel::llguidance
