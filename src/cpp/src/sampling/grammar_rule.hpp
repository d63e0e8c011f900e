// A grammar as the logits chain sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pagewheel/logits_processor.hpp"
#include "sampling/best_tokens.hpp"

namespace pagewheel {

/// The grammar allows no next token, so the sequence ends.
struct GrammarEnd : LogitsError {
    GrammarEnd(bool whole, const std::string& cause)
        : LogitsError(cause, ErrorCode::grammar_failed), is_whole(whole) {}

    bool is_whole;  ///< its text is one of the grammar; else it was cut short
};

/// Tokens that a GrammarRule keeps.
struct JumpForwardTokens {
    const int64_t* data;
    size_t size;

    const int64_t* begin() const { return data; }
    const int64_t* end() const { return data + size; }
    bool empty() const { return size == 0; }
};

/// Where one sequence is in its grammar. One thread at a time, but for cancel().
class GrammarRule {
public:
    virtual ~GrammarRule() = default;
    /// Goes on by the generated tokens that it has not seen, and finds which may come next. Does
    /// nothing where that is done: so it may be done ahead. Throws GrammarEnd, again at each call.
    virtual void follow(const TokenHistory& history) = 0;
    /// As follow() left it: bit i % 32 of word i / 32 says whether token i may come.
    virtual const std::vector<uint32_t>& mask() const = 0;
    /// Goes on as follow() does, and gives the tokens that must come next, whatever the logits.
    /// Empty where there is a choice, and where it fails. Valid until the next call.
    virtual JumpForwardTokens find_jump_forward(const TokenHistory& history) = 0;
    /// What another thread is in ends soon, and the grammar with it. Any thread.
    virtual void cancel() = 0;
    /// For another sequence that goes on as this one did so far.
    virtual std::unique_ptr<GrammarRule> fork() const = 0;
};

}  // namespace pagewheel
