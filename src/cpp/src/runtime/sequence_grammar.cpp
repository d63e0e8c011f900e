#include "runtime/sequence_grammar.hpp"

#include <algorithm>
#include <utility>

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
    try {
        accept(history);
        if (!m_has_mask) find_mask();
    } catch (const GrammarFailure& failure) {
        throw GrammarEnd(false, failure.what());
    }
}

void SequenceGrammar::accept(const TokenHistory& history) {
    for (size_t i = m_matcher->token_count(); i < history.num_generated(); ++i) {
        m_has_mask = m_has_forced = false;
        const int64_t token = history.tokens[history.prompt_length + i];
        if (!is_accepted(token))
            throw GrammarFailure(concat("the grammar does not allow token ", token));
    }
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
    m_matcher->compute_mask(m_mask.data());
    const bool is_empty =
        std::all_of(m_mask.begin(), m_mask.end(), [](uint32_t word) { return word == 0; });
    if (is_empty) throw GrammarEnd(m_matcher->is_finished(), "the grammar allows no next token");
    m_has_mask = true;
}

const std::vector<int64_t>& SequenceGrammar::find_forced(const TokenHistory& history) {
    try {
        accept(history);
        if (m_has_forced) return m_forced;
        m_forced.clear();
        m_forced = m_matcher->forced_tokens();
        if (m_forced.empty() && m_matcher->is_finished()) find_forced_stop();
        m_has_forced = true;
    } catch (const GrammarFailure&) {  // follow() says so
        m_forced.clear();
    }
    return m_forced;
}

void SequenceGrammar::find_forced_stop() {
    m_mask.resize(m_matcher->mask_words());
    m_matcher->compute_mask(m_mask.data());
    for (size_t i = 0; i < m_mask.size(); ++i)
        for (uint32_t word = m_mask[i]; word != 0 && m_forced.size() < 2; word &= word - 1)
            m_forced.push_back(int64_t(i * 32) + lowest_bit(word));
    m_has_mask = !m_forced.empty();
    if (m_forced.size() > 1) m_forced.clear();  // the model chooses among them
}

std::unique_ptr<GrammarRule> SequenceGrammar::fork() const {
    auto other = std::make_unique<SequenceGrammar>(m_matcher->clone());
    other->m_mask = m_mask;
    other->m_has_mask = m_has_mask;
    return other;
}

}  // namespace pagewheel
