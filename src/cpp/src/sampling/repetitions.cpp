#include "sampling/repetitions.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

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
