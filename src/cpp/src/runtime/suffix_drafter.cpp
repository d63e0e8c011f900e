#include "runtime/suffix_drafter.hpp"

#include <algorithm>
#include <iterator>

namespace pagewheel {
namespace {

constexpr size_t most_looked_at = 16;  // places of an n-gram
constexpr size_t longest_match = 32;
// What is kept of answers: 16 texts of 1.5 MB.
constexpr size_t most_salts = 16, most_answer_tokens = 65536;
// A predicted text stands behind so many tokens of the prompt's end, so that it is found there.
constexpr size_t prompt_end = 8;

/// Drafts are right by how long the match is that they continue, and where it was found.
uint8_t kind_of(size_t length, bool in_answers) {
    constexpr size_t least[] = {2, 3, 4, 6, 9, 17, longest_match};
    const auto bucket = std::upper_bound(std::begin(least), std::end(least), length);
    return uint8_t(bucket - std::begin(least)) + (in_answers ? Draft::num_kinds / 2 : 0);
}

/// The text of a sequence, and before it the one that was predicted.
struct OwnText final : DrafterState {
    SuffixIndex text;
    size_t num_known = 0;  ///< of the sequence's tokens
};

OwnText& own_text(SequenceState& sequence) {
    auto& state = sequence.drafts->drafter;
    if (!state) {
        state = std::make_unique<OwnText>();
        SuffixIndex& text = static_cast<OwnText&>(*state).text;
        const std::vector<int64_t>& predicted = sequence.request->prediction;
        if (!predicted.empty()) {
            const size_t end = sequence.prompt_length;
            for (size_t i = end - std::min(end, prompt_end); i < end; ++i)
                text.append(sequence.tokens[i]);
            for (const int64_t token : predicted) text.append(token);
            text.append(SuffixIndex::separator);
        }
    }
    return static_cast<OwnText&>(*state);
}

}  // namespace

size_t SuffixIndex::slot(size_t length, const int32_t* end) const {
    uint64_t hash = length;
    for (const int32_t* token = end - length; token < end; ++token)
        hash = (hash ^ uint32_t(*token)) * 0x9E3779B97F4A7C15ull;
    return size_t(hash >> 32) & (m_heads.size() - 1);
}

void SuffixIndex::enter(size_t end) {
    const int32_t* at = m_text.data() + end;
    for (const size_t length : {size_t(1), size_t(2), chained}) {
        if (end < length) return;
        uint32_t& head = m_heads[slot(length, at)];
        if (length == chained) m_before[end] = head;
        head = uint32_t(end);
    }
}

void SuffixIndex::append(int64_t token) {
    if (m_text.size() == m_most) {
        m_text.erase(m_text.begin(), m_text.end() - ptrdiff_t(m_most / 2));
        m_heads.clear();
    }
    // An n-gram is entered when it is known what comes after it.
    m_text.push_back(int32_t(token));
    m_before.resize(m_text.size());
    if (m_heads.size() >= 3 * m_text.size()) return enter(m_text.size() - 1);
    m_heads.assign(std::max<size_t>(64, 2 * m_heads.size()), 0);
    while (m_heads.size() < 3 * m_text.size()) m_heads.resize(2 * m_heads.size());
    for (size_t end = 1; end < m_text.size(); ++end) enter(end);
}

SuffixIndex::Match SuffixIndex::find(const std::vector<int64_t>& tokens, size_t longest) const {
    Match best;
    if (m_heads.empty()) return best;
    const size_t count = std::min(tokens.size(), longest);
    const auto look_at = [&](size_t end) {
        size_t length = 0;
        while (length < std::min(count, end) &&
               m_text[end - 1 - length] == tokens[tokens.size() - 1 - length])
            ++length;
        if (length > best.length) best = {end, length};
    };
    int32_t last[chained];
    const size_t num_last = std::min(chained, tokens.size());
    std::copy(tokens.end() - ptrdiff_t(num_last), tokens.end(), last);
    for (const size_t length : {chained, size_t(2), size_t(1)}) {
        if (best.length >= length || length > count) continue;
        size_t end = m_heads[slot(length, last + num_last)];
        for (size_t i = 0; i < most_looked_at && end > 0 && best.length < count; ++i) {
            look_at(end);
            end = length == chained ? m_before[end] : 0;
        }
    }
    return best;
}

void SuffixDrafter::propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) {
    OwnText& own = own_text(sequence);
    for (; own.num_known < sequence.tokens.size(); ++own.num_known)
        own.text.append(sequence.tokens[own.num_known]);
    const size_t asked = sequence.request->config().max_ngram_size;
    const size_t longest = asked > 0 ? std::min(asked, longest_match) : longest_match;
    const SuffixIndex* text = &own.text;
    SuffixIndex::Match match = text->find(sequence.tokens, longest);
    const auto answers = m_answers.find(sequence.request->cache_salt);
    if (answers != m_answers.end() && match.length < longest) {
        answers->second.last_use = ++m_uses;
        const SuffixIndex::Match other = answers->second.text.find(sequence.tokens, longest);
        if (other.length > match.length) {
            match = other;
            text = &answers->second.text;
        }
    }
    if (match.length == 0) return;
    const bool in_answers = text != &own.text;
    for (size_t i = match.end; drafts.size() < most; ++i) {
        // A text that runs in circles goes on in the drafts themselves.
        const int64_t token = i < text->size() ? (*text)[i] : drafts[i - text->size()].token;
        if (token == SuffixIndex::separator) return;
        drafts.push_back({token, kind_of(match.length + drafts.size(), in_answers)});
    }
}

void SuffixDrafter::finish(const SequenceState& sequence) {
    const size_t count = sequence.tokens.size();
    if (!m_learns || count < sequence.prompt_length + 2) return;
    const std::string& salt = sequence.request->cache_salt;
    if (m_answers.size() == most_salts && m_answers.count(salt) == 0)
        m_answers.erase(std::min_element(
            m_answers.begin(), m_answers.end(),
            [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; }));
    const auto known = m_answers.try_emplace(salt, Answers{SuffixIndex(most_answer_tokens)}).first;
    known->second.last_use = ++m_uses;
    SuffixIndex& text = known->second.text;
    for (size_t i = sequence.prompt_length; i < count; ++i) text.append(sequence.tokens[i]);
    text.append(SuffixIndex::separator);
}

void SuffixDrafter::forget(const std::optional<std::set<std::string>>& salts) {
    if (!salts) return m_answers.clear();
    for (const std::string& salt : *salts) m_answers.erase(salt);
}

}  // namespace pagewheel
