// A sequence in its grammar: the matcher behind the logits chain.
#pragma once

#include <memory>
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
    const std::vector<int64_t>& find_forced(const TokenHistory& history) override;
    std::unique_ptr<GrammarRule> fork() const override;

private:
    void accept(const TokenHistory& history);
    bool is_accepted(int64_t token);
    void find_mask();
    void find_forced_stop();

    std::unique_ptr<GrammarMatcher> m_matcher;
    std::vector<uint32_t> m_mask;
    bool m_has_mask = false;  // of the tokens that were accepted
    std::vector<int64_t> m_forced;
    bool m_has_forced = false;  // the same
};

}  // namespace pagewheel
