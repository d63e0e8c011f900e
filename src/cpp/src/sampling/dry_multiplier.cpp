// DRY ("don't repeat yourself", p-e-w 2024): a penalty on what would continue a repetition.
#include <algorithm>
#include <cmath>
#include <optional>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

/// What of a sequence repeats itself. Tokens are counted backwards: token 0 is the latest.
class Repetitions {
public:
    /// The last `size` of the tokens.
    Repetitions(const std::vector<int64_t>& tokens, size_t size)
        : m_latest(tokens.rbegin()), m_size(size) {}

    int64_t token(size_t i) const { return m_latest[ptrdiff_t(i)]; }
    size_t size() const { return m_size; }

    /// Tokens since the end of the latest breaker: no repetition reaches across one.
    size_t since_breaker(const SequenceBreakers& breakers) const {
        for (size_t i = 0; i < m_size; ++i) {
            const auto tails = breakers.find(token(i));
            if (tails == breakers.end()) continue;
            std::optional<size_t> longest;
            for (const auto& tail : tails->second)
                if (tail.size() <= i && stands_behind(i, tail))
                    longest = std::max(longest.value_or(0), tail.size());
            if (longest) return i - *longest;
        }
        return m_size;
    }

    /// lengths[i]: so many tokens, up to `most`, end at i and at 0 alike. The Z-algorithm, which
    /// takes as many comparisons as there are tokens.
    void find_lengths(size_t most, std::vector<size_t>& lengths) const {
        lengths.assign(m_size, 0);
        size_t begin = 0, end = 0;  // of the stretch that is known to be alike and reaches farthest
        for (size_t i = 1; i < m_size; ++i) {
            size_t& length = lengths[i];
            if (i < end) length = std::min(lengths[i - begin], end - i);
            if (i + length >= end)
                while (i + length < m_size && token(length) == token(i + length)) ++length;
            if (i + length > end) {
                begin = i;
                end = i + length;
            }
        }
        for (size_t& length : lengths) length = std::min(length, most);
    }

private:
    bool stands_behind(size_t i, const std::vector<int64_t>& tail) const {
        for (size_t k = 0; k < tail.size(); ++k)
            if (tail[k] != token(i - 1 - k)) return false;
        return true;
    }

    std::vector<int64_t>::const_reverse_iterator m_latest;
    size_t m_size;
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
          m_breakers(rules.breakers ? rules.breakers : std::make_shared<const SequenceBreakers>()) {
    }

    void operator()(const LogitsRow& row, const TokenHistory& history) {
        const Repetitions tokens(history.tokens, std::min(m_last, history.tokens.size()));
        if (tokens.size() <= m_allowed) return;
        const size_t most = tokens.since_breaker(*m_breakers);
        if (most < m_allowed) return;
        tokens.find_lengths(most, m_lengths);
        m_found.clear();
        for (size_t i = 1; i < tokens.size(); ++i)
            if (m_lengths[i] >= m_allowed) m_found.push_back({tokens.token(i - 1), m_lengths[i]});
        std::sort(m_found.begin(), m_found.end(), [](const Found& a, const Found& b) {
            return a.token != b.token ? a.token < b.token : a.length > b.length;
        });
        const auto end =
            std::unique(m_found.begin(), m_found.end(),
                        [](const Found& a, const Found& b) { return a.token == b.token; });
        for (auto found = m_found.begin(); found != end; ++found)
            if (row.has(found->token) && !is_breaker(found->token))
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
    bool is_breaker(int64_t token) const {
        const auto tails = m_breakers->find(token);
        return tails != m_breakers->end() &&
               std::any_of(tails->second.begin(), tails->second.end(),
                           [](const auto& tail) { return tail.empty(); });
    }

    float m_multiplier, m_base;
    size_t m_allowed, m_last;
    std::shared_ptr<const SequenceBreakers> m_breakers;
    std::vector<size_t> m_lengths;  // kept for its memory, as the next
    std::vector<Found> m_found;
};

}  // namespace

std::unique_ptr<LogitsProcessor> make_dry_multiplier(const GenerationConfig& config,
                                                     const TokenRules& rules) {
    if (config.dry_multiplier == 0.0f || config.dry_penalty_last_n == 0) return nullptr;
    return make_processor(Dry(config, rules));
}

}  // namespace pagewheel
