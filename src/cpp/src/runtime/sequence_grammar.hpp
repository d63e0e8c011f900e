// A sequence in its grammar: the matcher behind the logits chain.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "pagewheel/grammar_matcher.hpp"
#include "sampling/grammar_rule.hpp"

namespace pagewheel {

class SequenceGrammar final : public GrammarRule {
public:
    /// `matcher` is at its beginning.
    explicit SequenceGrammar(std::unique_ptr<GrammarMatcher> matcher)
        : m_matcher(std::move(matcher)) {}

    void follow(const TokenHistory& history) override;
    const std::vector<uint32_t>& mask() const override { return m_mask; }
    JumpForwardTokens find_jump_forward(const TokenHistory& history) override;
    void cancel() override { m_matcher->cancel(); }
    std::unique_ptr<GrammarRule> fork() const override;

private:
    void accept(const TokenHistory& history);
    bool is_accepted(int64_t token);
    /// The token was accepted: what is known of those behind it remains.
    void pass(int64_t token);
    void find_mask();
    void find_only_stop_token();
    bool is_jumping_forward() const { return m_num_passed < m_jump_forward.size(); }

    const std::unique_ptr<GrammarMatcher> m_matcher;
    std::optional<GrammarEnd> m_end;  // thrown again
    std::vector<uint32_t> m_mask;
    bool m_has_mask = false;  // of the tokens that were accepted
    // All that the matcher found: a long text is searched once, not anew for each part of it.
    std::vector<int64_t> m_jump_forward;
    size_t m_num_passed = 0;          // of m_jump_forward, those that were accepted since
    bool m_has_jump_forward = false;  // the rest is what must come next; empty: nothing must
};

}  // namespace pagewheel
