// A grammar that is a list of texts, for tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/grammar_matcher.hpp"

namespace pagewheel {

/// Allows the tokens of any of the texts, then the stop tokens.
class ListMatcher final : public GrammarMatcher {
public:
    using Tokens = std::vector<int64_t>;

    struct Grammar {
        std::vector<Tokens> texts;
        Tokens stops = {};
        size_t num_tokens = 100;  ///< of the vocabulary
        /// Called before each mask with the tokens so far; what it throws passes.
        std::function<void(const Tokens&)> before_mask = [](const Tokens&) {};
        /// The same before jump_forward_tokens().
        std::function<void(const Tokens&)> before_jump_forward = [](const Tokens&) {};
        /// Where it is true behind these tokens, masks and jump-forward tokens take a processor
        /// until it is false or the matcher is cancelled.
        std::function<bool(const Tokens&)> takes_long = [](const Tokens&) { return false; };
    };

    explicit ListMatcher(Grammar grammar) : m_grammar(std::move(grammar)) {}

    size_t mask_words() const override { return (m_grammar.num_tokens + 31) / 32; }
    void compute_mask(uint32_t* bits) override {
        m_grammar.before_mask(m_tokens);
        work();
        std::fill_n(bits, mask_words(), 0);
        for (const int64_t token : next()) bits[token / 32] |= uint32_t(1) << (token % 32);
    }
    bool accept(int64_t token) override {
        const Tokens allowed = next();
        if (std::find(allowed.begin(), allowed.end(), token) == allowed.end()) return false;
        m_tokens.push_back(token);
        return true;
    }
    void roll_back(size_t tokens) override {
        check_argument(tokens <= m_tokens.size(), "too many to roll back");
        m_tokens.resize(m_tokens.size() - tokens);
    }
    Tokens jump_forward_tokens() override {
        m_grammar.before_jump_forward(m_tokens);
        work();
        ListMatcher ahead(*this);
        Tokens forced;
        while (!ahead.is_accepting()) {
            Tokens allowed = ahead.next();
            std::sort(allowed.begin(), allowed.end());
            allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
            if (allowed.size() != 1) break;
            forced.push_back(allowed.front());
            ahead.accept(allowed.front());
        }
        return forced;
    }
    bool is_accepting() override { return is_finished() || is_text(m_tokens); }
    bool is_finished() override {
        return (!m_tokens.empty() && is_text({m_tokens.begin(), m_tokens.end() - 1}) &&
                is_stop(m_tokens.back())) ||
               (is_text(m_tokens) && next() == m_grammar.stops);
    }
    void cancel() override { *m_is_cancelled = true; }
    size_t token_count() const override { return m_tokens.size(); }
    std::unique_ptr<GrammarMatcher> clone() const override {
        auto copy = std::make_unique<ListMatcher>(*this);
        copy->m_is_cancelled = std::make_shared<std::atomic<bool>>(false);
        return copy;
    }

private:
    void work() const {
        while (m_grammar.takes_long(m_tokens) && !*m_is_cancelled) {
        }
        if (*m_is_cancelled) throw GrammarFailure("cancelled");
    }
    bool is_stop(int64_t token) const {
        return std::find(m_grammar.stops.begin(), m_grammar.stops.end(), token) !=
               m_grammar.stops.end();
    }
    bool is_text(const Tokens& tokens) const {
        return std::find(m_grammar.texts.begin(), m_grammar.texts.end(), tokens) !=
               m_grammar.texts.end();
    }
    Tokens next() const {
        Tokens all;
        for (const Tokens& text : m_grammar.texts)
            if (text.size() > m_tokens.size() &&
                std::equal(m_tokens.begin(), m_tokens.end(), text.begin()))
                all.push_back(text[m_tokens.size()]);
        if (is_text(m_tokens))
            all.insert(all.end(), m_grammar.stops.begin(), m_grammar.stops.end());
        return all;
    }

    Grammar m_grammar;
    Tokens m_tokens;
    std::shared_ptr<std::atomic<bool>> m_is_cancelled = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace pagewheel
