// DRY ("don't repeat yourself", p-e-w 2024): a penalty on what would continue a repetition.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "sampling/logits_chain.hpp"
#include "sampling/repetitions.hpp"

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

/// Follows a sequence that grows. A token costs time in proportion to the places where the last two
/// tokens stood before, not to the length of the sequence.
///
/// A copy shares what was read until seal(), and copies 8 to 24 bytes for each token since.
class Repetitions {
public:
    struct Place {
        uint32_t next;    ///< index of the token that followed
        uint32_t length;  ///< so many tokens before it are the last ones of the sequence
    };

    /// Looks for places of at least `shortest` tokens, one or more, and may give some of two.
    explicit Repetitions(size_t shortest) : m_gram(shortest > 1 ? 2 : 1) {
        std::random_device random;
        for (uint64_t& factor : m_factors) factor = (uint64_t(random()) << 32 | random()) | 1;
    }

    /// Reads the first `end` of the tokens, but for those that were read before.
    void read(const Tokens& tokens, size_t end) {
        check_invariant(end <= tokens.size() && m_own.end() <= end && end < none, "of ",
                        tokens.size(), " tokens ", m_own.end(), " were read, and ", end,
                        " are to be");
        const bool is_first = m_own.end() == 0;
        while (m_own.end() < end) {
            const uint32_t i = m_own.end();
            link(tokens, i);
            if (!is_first) advance_places(i);
        }
        if (is_first && end > 0) find_places(tokens);
    }
    /// Has later copies share what was read.
    void seal() {
        check_invariant(!m_sealed, "repetitions are sealed already");
        m_sealed = std::make_shared<const Links>(std::move(m_own));
        m_own = {};
        m_own.begin = m_sealed->end();
    }
    /// The latest first. Each is as long as it can be.
    const std::vector<Place>& places() const { return m_places; }

private:
    static constexpr uint32_t none = UINT32_MAX;
    /// The links of the tokens from `begin` on. A gram is one token, or two neighbours.
    struct Links {
        uint32_t begin = 0;
        std::vector<uint32_t> before;  // by token: where the gram that ends with it ended before
        std::vector<uint32_t> latest;  // a hash table of the latest ends of all grams
        size_t num_grams = 0;

        uint32_t end() const { return begin + uint32_t(before.size()); }
    };

    /// The slot of the table for the gram that ends with token `i`.
    size_t find_slot(const Links& links, const Tokens& tokens, uint32_t i) const {
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
    void grow_table(const Tokens& tokens) {
        std::vector<uint32_t> old(std::max<size_t>(16, 2 * m_own.latest.size()), none);
        old.swap(m_own.latest);
        for (const uint32_t i : old)
            if (i != none) m_own.latest[find_slot(m_own, tokens, i)] = i;
    }
    void link(const Tokens& tokens, uint32_t i) {
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
    uint32_t before(uint32_t i) const {
        return i < m_own.begin ? m_sealed->before[i] : m_own.before[i - m_own.begin];
    }
    /// Finds the places anew, or from those of the token before.
    void find_places(const Tokens& tokens) {
        const uint32_t last = m_own.end() - 1;
        if (before(last) == none) return;
        const std::vector<uint32_t> lengths = find_lengths(tokens, m_own.end());
        for (uint32_t i = before(last); i != none; i = before(i))
            m_places.push_back({i + 1, lengths[last - i]});
    }
    void advance_places(uint32_t i) {
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

    uint32_t m_gram;
    std::array<uint64_t, 2> m_factors;  // of the tables' hashes
    std::shared_ptr<const Links> m_sealed;
    Links m_own;
    std::vector<Place> m_places, m_next_places;  // the second is kept for its memory
};

/// The latest breaker in the text of a sequence that grows: the one that begins in the latest
/// token, and of those the one that ends in the latest.
class LatestBreaker {
public:
    /// Null: there are none.
    explicit LatestBreaker(std::shared_ptr<const SequenceBreakers> breakers)
        : m_breakers(std::move(breakers)) {}

    void read(const Tokens& tokens, size_t end) {
        if (!m_breakers) return;
        for (; m_num_read < end; ++m_num_read) read_token(tokens[m_num_read]);
    }
    /// How many of the first `end` tokens come after the breaker, if it is in those from `begin`
    /// on.
    size_t num_behind(size_t begin, size_t end) const {
        return m_is_found && m_begin >= begin ? end - m_end : end - begin;
    }

private:
    struct Start {
        size_t token, byte;
    };

    void read_token(int64_t token) {
        m_starts.push_back({m_num_read, m_num_bytes});
        for (const char byte : m_breakers->bytes(token)) {
            m_state = m_breakers->texts.next(m_state, byte);
            ++m_num_bytes;
            const size_t size = m_breakers->texts.shortest_match(m_state);
            if (size > 0) note(token_of(m_num_bytes - size));
        }
        // Keeps only tokens in which a breaker may have begun.
        const size_t begun = m_num_bytes - m_breakers->texts.num_begun(m_state);
        const auto first = find_start(begun);
        m_starts.erase(m_starts.begin(), first);
    }
    void note(size_t begin) {
        if (m_is_found && begin < m_begin) return;
        m_is_found = true;
        m_begin = begin;
        m_end = m_num_read + 1;
    }
    /// The last token that starts at the byte or before it.
    std::vector<Start>::const_iterator find_start(size_t byte) const {
        const auto behind =
            std::upper_bound(m_starts.begin(), m_starts.end(), byte,
                             [](size_t wanted, const Start& start) { return wanted < start.byte; });
        return behind - 1;
    }
    size_t token_of(size_t byte) const { return find_start(byte)->token; }

    std::shared_ptr<const SequenceBreakers> m_breakers;
    TextAutomaton::State m_state = TextAutomaton::start;
    size_t m_num_read = 0, m_num_bytes = 0;  // tokens and their bytes
    std::vector<Start> m_starts;             // of the tokens in which a breaker may have begun
    bool m_is_found = false;
    size_t m_begin = 0, m_end = 0;  // its first token, and the one behind it
};

struct DryState {
    Repetitions repetitions;
    LatestBreaker breaker;

    void read(const Tokens& tokens, size_t end) {
        repetitions.read(tokens, end);
        breaker.read(tokens, end);
    }
    void seal() { repetitions.seal(); }
};

/// Subtracts multiplier * base ^ (length - allowed_length) from each token that followed the last
/// `length` tokens before, the longest where there are several; from no token that is a breaker.
class Dry {
public:
    Dry(const GenerationConfig& config, const TokenRules& rules)
        : m_multiplier(config.dry_multiplier),
          m_base(config.dry_base),
          m_allowed(config.dry_allowed_length),
          m_last(config.dry_penalty_last_n < 0 ? GenerationConfig::unlimited
                                               : size_t(config.dry_penalty_last_n)),
          m_breakers(rules.breakers),
          m_state(DryState{Repetitions(m_allowed), LatestBreaker(rules.breakers)}) {}

    void operator()(const LogitsRow& row, const TokenHistory& history) {
        const Tokens& tokens = history.tokens;
        const DryState& state = m_state.read(history);
        const size_t begin = tokens.size() - std::min(m_last, tokens.size());
        const size_t most = state.breaker.num_behind(begin, tokens.size());
        m_found.clear();
        for (const auto& [next, length] : state.repetitions.places()) {
            if (next <= begin) break;
            const size_t counted = std::min({size_t(length), most, next - begin});
            if (counted < m_allowed) continue;
            if (m_found.empty() || m_found.back().token != tokens[next])
                m_found.push_back({tokens[next], counted});
            m_found.back().length = std::max(m_found.back().length, counted);
        }
        std::sort(m_found.begin(), m_found.end(), [](const Found& a, const Found& b) {
            return a.token != b.token ? a.token < b.token : a.length > b.length;
        });
        const auto end =
            std::unique(m_found.begin(), m_found.end(),
                        [](const Found& a, const Found& b) { return a.token == b.token; });
        for (auto found = m_found.begin(); found != end; ++found)
            if (row.has(found->token) && !(m_breakers && m_breakers->is_in(found->token)))
                row.logits[found->token] -= penalty(found->length);
    }

private:
    struct Found {
        int64_t token;
        size_t length;
    };

    float penalty(size_t length) const {
        constexpr double most = std::numeric_limits<float>::max();
        // Half of it: what is finite stays finite.
        return float(std::min(
            double(m_multiplier) * std::pow(double(m_base), double(length - m_allowed)), most / 2));
    }

    float m_multiplier, m_base;
    size_t m_allowed, m_last;
    std::shared_ptr<const SequenceBreakers> m_breakers;
    SharedPrompt<DryState> m_state;
    std::vector<Found> m_found;  // kept for its memory
};

}  // namespace

ProcessorPtr make_dry_multiplier(const GenerationConfig& config, const TokenRules& rules) {
    if (config.dry_multiplier == 0.0f || config.dry_penalty_last_n == 0) return nullptr;
    return make_processor(Dry(config, rules));
}

}  // namespace pagewheel
