#include "sampling/sequence_grammar.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pagewheel {
namespace {

int64_t lowest_bit(uint32_t word) {
    int64_t bit = 0;
    while ((word >> bit & 1) == 0) ++bit;
    return bit;
}

}  // namespace

void SequenceGrammar::follow(const TokenHistory& history) {
    if (m_end) throw GrammarEnd(*m_end);
    try {
        accept(history);
        if (!m_has_mask) find_mask();
    } catch (const GrammarFailure& failure) {
        m_end.emplace(false, failure.what());
    } catch (const GrammarEnd& end) {
        m_end = end;
    }
    if (m_end) throw GrammarEnd(*m_end);
}

bool SequenceGrammar::has_mask(const TokenHistory& history) const {
    return m_end || (m_has_mask && m_matcher->token_count() == history.num_generated());
}

void SequenceGrammar::restart(const SequenceGrammar& beginning) {
    m_matcher = beginning.m_matcher->clone();
    m_end = beginning.m_end;
    m_has_mask = m_has_jump_forward = false;
    m_jump_forward.clear();
    m_num_passed = 0;
}

void SequenceGrammar::accept(const TokenHistory& history) {
    for (size_t i = m_matcher->token_count(); i < history.num_generated(); ++i) {
        const int64_t token = history.tokens[history.prompt_length + i];
        if (!is_accepted(token))
            throw GrammarFailure(concat("the grammar does not allow token ", token));
        pass(token);
    }
}

void SequenceGrammar::pass(int64_t token) {
    m_has_mask = false;
    if (is_jumping_forward() && m_jump_forward[m_num_passed] == token)
        ++m_num_passed;
    else
        m_num_passed = m_jump_forward.size();
    if (is_jumping_forward()) return;
    m_has_jump_forward = false;
    m_jump_forward.clear();
    m_num_passed = 0;
}

bool SequenceGrammar::is_accepted(int64_t token) {
    try {
        return m_matcher->accept(token);
    } catch (const InvalidArgument&) {  // one that the tokenizer does not know
        return false;
    }
}

void SequenceGrammar::find_mask() {
    m_mask.resize(m_matcher->mask_words());
    if (is_jumping_forward()) {
        std::fill(m_mask.begin(), m_mask.end(), 0);
        const int64_t only = m_jump_forward[m_num_passed];
        m_mask.at(size_t(only / 32)) = uint32_t(1) << (only % 32);
        m_has_mask = true;
        return;
    }
    m_matcher->compute_mask(m_mask.data());
    const bool is_empty =
        std::all_of(m_mask.begin(), m_mask.end(), [](uint32_t word) { return word == 0; });
    if (is_empty) throw GrammarEnd(m_matcher->is_finished(), "the grammar allows no next token");
    m_has_mask = true;
}

std::vector<int64_t> SequenceGrammar::find_jump_forward(const TokenHistory& history) {
    try {
        accept(history);
        if (!m_has_jump_forward) {
            m_jump_forward = m_matcher->jump_forward_tokens();
            if (m_jump_forward.empty() && m_matcher->is_finished()) find_only_stop_token();
            m_has_jump_forward = true;
        }
    } catch (const GrammarFailure&) {  // follow() says so
        m_jump_forward.clear();
        m_num_passed = 0;
    }
    return {m_jump_forward.begin() + ptrdiff_t(m_num_passed), m_jump_forward.end()};
}

void SequenceGrammar::find_only_stop_token() {
    m_mask.resize(m_matcher->mask_words());
    m_matcher->compute_mask(m_mask.data());
    for (size_t i = 0; i < m_mask.size(); ++i)
        for (uint32_t word = m_mask[i]; word != 0 && m_jump_forward.size() < 2; word &= word - 1)
            m_jump_forward.push_back(int64_t(i * 32) + lowest_bit(word));
    m_has_mask = !m_jump_forward.empty();
    if (m_jump_forward.size() > 1) m_jump_forward.clear();  // the model chooses among them
}

std::unique_ptr<SequenceGrammar> SequenceGrammar::fork() const {
    auto other = std::make_unique<SequenceGrammar>(m_matcher->clone(), m_lexer);
    other->m_mask = m_mask;
    other->m_has_mask = m_has_mask;
    other->m_end = m_end;
    return other;
}

}  // namespace pagewheel
