// Where a sequence is in its grammar: the matcher behind the logits chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/grammar_matcher.hpp"
#include "pagewheel/logits_processor.hpp"
#include "sampling/log_probs.hpp"

namespace pagewheel {

/// The grammar allows no next token, so the sequence ends.
struct GrammarEnd : LogitsError {
    GrammarEnd(bool whole, const std::string& cause)
        : LogitsError(cause, ErrorCode::grammar_failed), is_whole(whole) {}

    bool is_whole;  ///< its text is one of the grammar; else it was cut short
};

/// Where one sequence is in its grammar. One thread at a time, but for cancel().
class SequenceGrammar {
public:
    /// `matcher` is at its beginning. Matchers with the same lexer wait for each other.
    explicit SequenceGrammar(std::unique_ptr<GrammarMatcher> matcher, const void* lexer)
        : m_matcher(std::move(matcher)), m_lexer(lexer) {}

    /// Goes on by the generated tokens that it has not seen, and finds which may come next. Does
    /// nothing where that is done: so it may be done ahead. Throws GrammarEnd, again at each call.
    void follow(const TokenHistory& history);
    /// Whether follow() has nothing left to find.
    bool has_mask(const TokenHistory& history) const;
    /// The mask that follow() left: bit i % 32 of word i / 32 says whether token i may come.
    const std::vector<uint32_t>& mask() const { return m_mask; }
    /// Goes on as follow() does, and gives the tokens that must come next, whatever the logits.
    /// Empty where there is a choice, and where it fails.
    std::vector<int64_t> find_jump_forward(const TokenHistory& history);
    /// What another thread is in ends soon, and the grammar with it. Any thread.
    void cancel() { m_matcher->cancel(); }
    /// Becomes a copy of `beginning` after it was cancelled: follow() catches up.
    void restart(const SequenceGrammar& beginning);
    /// Nothing may come next.
    void end(const std::string& cause) { m_end.emplace(false, cause); }
    const void* lexer() const { return m_lexer; }
    /// A copy for another sequence that goes on as this one did so far.
    std::unique_ptr<SequenceGrammar> fork() const;

private:
    void accept(const TokenHistory& history);
    bool is_accepted(int64_t token);
    /// The token was accepted: what is known of those behind it remains.
    void pass(int64_t token);
    void find_mask();
    void find_only_stop_token();
    bool is_jumping_forward() const { return m_num_passed < m_jump_forward.size(); }

    std::unique_ptr<GrammarMatcher> m_matcher;
    const void* const m_lexer;
    std::optional<GrammarEnd> m_end;  // thrown again
    std::vector<uint32_t> m_mask;
    bool m_has_mask = false;  // of the tokens that were accepted
    // All that the matcher found: a long text is searched once, not anew for each part of it.
    std::vector<int64_t> m_jump_forward;
    size_t m_num_passed = 0;          // of m_jump_forward, those that were accepted since
    bool m_has_jump_forward = false;  // the rest is what must come next; empty: nothing must
};

}  // namespace pagewheel
