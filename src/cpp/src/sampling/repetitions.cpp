#include "sampling/repetitions.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

/// Gives, for each distance from the end of the first `size` tokens, how many of them end there and
/// at the end alike. The Z-algorithm, which takes as many comparisons as there are tokens.
std::vector<uint32_t> find_lengths(const Tokens& tokens, size_t size) {
    std::vector<uint32_t> lengths(size, 0);
    const auto token = [&](size_t distance) { return tokens[size - 1 - distance]; };
    size_t begin = 0, end = 0;  // of the stretch that is known to be alike and reaches farthest
    for (size_t i = 1; i < size; ++i) {
        size_t length = i < end ? std::min(size_t(lengths[i - begin]), end - i) : 0;
        if (i + length >= end)
            while (i + length < size && token(length) == token(i + length)) ++length;
        if (i + length > end) {
            begin = i;
            end = i + length;
        }
        lengths[i] = uint32_t(length);
    }
    return lengths;
}

}  // namespace

void TokenCounts::update(const std::vector<int64_t>& tokens, size_t first) {
    first = std::max(first, m_num_read);
    check_invariant(first <= tokens.size(), "a sequence of ", tokens.size(), " tokens had ", first);
    m_num_read = tokens.size();
    // Each is searched after the one before, in order: a whole prompt is as cheap as its sorting.
    m_fresh.assign(tokens.begin() + ptrdiff_t(first), tokens.end());
    std::sort(m_fresh.begin(), m_fresh.end());
    auto place = m_counts.begin();
    for (const int64_t token : m_fresh) {
        place = std::lower_bound(
            place, m_counts.end(), token,
            [](const TokenCount& count, int64_t wanted) { return count.token < wanted; });
        if (place == m_counts.end() || place->token != token)
            place = m_counts.insert(place, {token, 0});
        ++place->count;
    }
    m_fresh.clear();
}

Repetitions::Repetitions(size_t shortest) : m_gram(shortest > 1 ? 2 : 1) {
    std::random_device random;
    for (uint64_t& factor : m_factors) factor = (uint64_t(random()) << 32 | random()) | 1;
}

void Repetitions::read(const Tokens& tokens, size_t end) {
    check_invariant(end <= tokens.size() && m_own.end() <= end && end < none, "of ", tokens.size(),
                    " tokens ", m_own.end(), " were read, and ", end, " are to be");
    const bool is_first = m_own.end() == 0;
    while (m_own.end() < end) {
        const uint32_t i = m_own.end();
        link(tokens, i);
        if (!is_first) advance_places(i);
    }
    if (is_first && end > 0) find_places(tokens);
}

void Repetitions::seal() {
    check_invariant(!m_sealed, "repetitions are sealed already");
    m_sealed = std::make_shared<const Links>(std::move(m_own));
    m_own = {};
    m_own.begin = m_sealed->end();
}

size_t Repetitions::find_slot(const Links& links, const Tokens& tokens, uint32_t i) const {
    // The highest bits of a sum with random factors: no prompt can be made whose grams collide.
    uint64_t hash = uint64_t(tokens[i]) * m_factors[0];
    if (m_gram == 2) hash += uint64_t(tokens[i - 1]) * m_factors[1];
    const size_t size = links.latest.size();
    for (size_t slot = size_t((hash >> 32) * size >> 32);; slot = (slot + 1) % size) {
        const uint32_t other = links.latest[slot];
        if (other == none ||
            (tokens[other] == tokens[i] && (m_gram == 1 || tokens[other - 1] == tokens[i - 1])))
            return slot;
    }
}

void Repetitions::grow_table(const Tokens& tokens) {
    std::vector<uint32_t> old(std::max<size_t>(16, 2 * m_own.latest.size()), none);
    old.swap(m_own.latest);
    for (const uint32_t i : old)
        if (i != none) m_own.latest[find_slot(m_own, tokens, i)] = i;
}

void Repetitions::link(const Tokens& tokens, uint32_t i) {
    m_own.before.push_back(none);
    if (i + 1 < m_gram) return;
    if (2 * (m_own.num_grams + 1) > m_own.latest.size()) grow_table(tokens);
    uint32_t& latest = m_own.latest[find_slot(m_own, tokens, i)];
    m_own.before.back() = latest;
    if (latest == none) {
        ++m_own.num_grams;
        if (m_sealed && !m_sealed->latest.empty())
            m_own.before.back() = m_sealed->latest[find_slot(*m_sealed, tokens, i)];
    }
    latest = i;
}

uint32_t Repetitions::before(uint32_t i) const {
    return i < m_own.begin ? m_sealed->before[i] : m_own.before[i - m_own.begin];
}

void Repetitions::find_places(const Tokens& tokens) {
    const uint32_t last = m_own.end() - 1;
    if (before(last) == none) return;
    const std::vector<uint32_t> lengths = find_lengths(tokens, m_own.end());
    for (uint32_t i = before(last); i != none; i = before(i))
        m_places.push_back({i + 1, lengths[last - i]});
}

void Repetitions::advance_places(uint32_t i) {
    m_next_places.clear();
    auto old = m_places.begin();
    for (uint32_t end = before(i); end != none; end = before(end)) {
        // One token longer, where the tokens before were a place. Both go backwards.
        while (old != m_places.end() && old->next > end) ++old;
        const bool is_longer = old != m_places.end() && old->next == end;
        m_next_places.push_back({end + 1, is_longer ? old->length + 1 : m_gram});
    }
    m_places.swap(m_next_places);
}

}  // namespace pagewheel
