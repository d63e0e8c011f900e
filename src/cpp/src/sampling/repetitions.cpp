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

namespace {

// Followers that are looked through one by one before they are sorted.
constexpr size_t most_fresh = 256;

constexpr uint64_t prime = (uint64_t(1) << 61) - 1;

/// The product modulo the prime; both are below it.
uint64_t times(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide(a) * b;
    const uint64_t sum = uint64_t(product & prime) + uint64_t(product >> 61);
    return sum >= prime ? sum - prime : sum;
}

}  // namespace

GramFollowers::GramFollowers(size_t size) : m_size(size), m_power(1) {
    std::random_device random;
    m_factor = (uint64_t(random()) << 32 | random()) % (prime - 2) + 2;
    for (uint64_t square = m_factor; size > 0; size /= 2, square = times(square, square))
        if (size % 2 == 1) m_power = times(m_power, square);
}

void GramFollowers::read(const Tokens& tokens, size_t end) {
    check_invariant(end <= tokens.size() && m_num_read <= end, "of ", tokens.size(), " tokens ",
                    m_num_read, " were read, and ", end, " are to be");
    const auto digit = [&](size_t i) { return uint64_t(tokens[i]) + 1; };
    for (; m_num_read < end; ++m_num_read) {
        const bool is_whole = m_num_read >= m_size;
        if (is_whole) add({m_gram, tokens[m_num_read]});
        const uint64_t gone = is_whole ? times(digit(m_num_read - m_size), m_power) : 0;
        m_gram = (times(m_gram, m_factor) + digit(m_num_read) + prime - gone) % prime;
    }
    if (m_fresh.size() > most_fresh) merge();
}

void GramFollowers::add(const Entry& entry) {
    const auto has = [&](const Entries& all) {
        return std::binary_search(all.begin(), all.end(), entry);
    };
    if (!has(m_own) && !(m_sealed && has(*m_sealed))) m_fresh.push_back(entry);
}

void GramFollowers::merge() {
    const auto is_same = [](const Entry& a, const Entry& b) { return !(a < b) && !(b < a); };
    std::sort(m_fresh.begin(), m_fresh.end());
    const auto middle = ptrdiff_t(m_own.size());
    m_own.insert(m_own.end(), m_fresh.begin(), m_fresh.end());
    std::inplace_merge(m_own.begin(), m_own.begin() + middle, m_own.end());
    m_own.erase(std::unique(m_own.begin(), m_own.end(), is_same), m_own.end());
    m_fresh.clear();
}

void GramFollowers::seal() {
    merge();
    m_sealed = std::make_shared<const Entries>(std::move(m_own));
    m_own = {};
}

void GramFollowers::find(Tokens& followers) const {
    followers.clear();
    if (m_num_read < m_size) return;
    const auto find_in = [&](const Entries& all) {
        auto entry = std::lower_bound(all.begin(), all.end(), Entry{m_gram, 0});
        for (; entry != all.end() && entry->gram == m_gram; ++entry)
            followers.push_back(entry->follower);
    };
    if (m_sealed) find_in(*m_sealed);
    find_in(m_own);
    for (const Entry& entry : m_fresh)
        if (entry.gram == m_gram) followers.push_back(entry.follower);
}

}  // namespace pagewheel
