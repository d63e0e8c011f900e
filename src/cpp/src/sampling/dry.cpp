// DRY ("don't repeat yourself", p-e-w 2024): a penalty on what would continue a repetition.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sampling/logits_chain.hpp"
#include "sampling/repetitions.hpp"

namespace pagewheel {
namespace {

/// The latest breaker in the text of a sequence that grows: the one that begins in the latest
/// token, and of those the one that ends in the latest.
class LatestBreaker {
public:
    /// Null: there are none.
    explicit LatestBreaker(std::shared_ptr<const SequenceBreakers> breakers)
        : m_breakers(std::move(breakers)) {}

    void read(const std::vector<int64_t>& tokens, size_t end) {
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

    void read(const std::vector<int64_t>& tokens, size_t end) {
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
        const std::vector<int64_t>& tokens = history.tokens;
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
