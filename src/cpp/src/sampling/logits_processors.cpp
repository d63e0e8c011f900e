// The logits processors of the table of parameters, but for DRY: biases, penalties and bans. Each
// make_NAME() gives nullptr where the config does not ask for it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/logits_chain.hpp"
#include "sampling/repetitions.hpp"

namespace pagewheel {
namespace {

using Sequence = std::vector<int64_t>;

struct ByTokenBeforeLast {
    bool operator()(const Sequence& a, int64_t b) const { return before_last(a) < b; }
    bool operator()(int64_t a, const Sequence& b) const { return a < before_last(b); }
};

/// Whether the sequence would be complete with its last token.
bool is_due(const Sequence& sequence, const std::vector<int64_t>& tokens) {
    const size_t size = sequence.size() - 1;
    return size <= tokens.size() &&
           std::equal(sequence.begin(), sequence.end() - 1, tokens.end() - ptrdiff_t(size));
}

/// Whether a token may come that is none of these, which ascend.
bool has_other(const LogitsRow& row, const std::vector<int64_t>& tokens) {
    constexpr float banned = -std::numeric_limits<float>::infinity();
    size_t begin = 0;
    const auto is_left = [&](size_t end) {
        const float* found = std::find_if(row.logits + begin, row.logits + end,
                                          [](float logit) { return logit != banned; });
        return found != row.logits + end;
    };
    for (const int64_t token : tokens) {
        if (!row.has(token)) continue;
        if (is_left(size_t(token))) return true;
        begin = size_t(token) + 1;
    }
    return is_left(row.size);
}

}  // namespace

/// OpenAI's bias: adds to the token's value, once. Log-probabilities are not normalised again.
ProcessorPtr make_logit_bias(const GenerationConfig& config, const TokenRules& rules) {
    if (config.logit_bias.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            for (const auto& [token, bias] : lists->biases)
                if (row.has(token)) row.logits[token] += bias;
        });
}

/// CTRL's penalty (Keskar et al. 2019): divides positive values by the penalty and multiplies the
/// others by it, once for each token in prompt and generation. What is finite stays finite; what is
/// banned stays banned.
ProcessorPtr make_repetition_penalty(const GenerationConfig& config, const TokenRules& /*rules*/) {
    if (config.repetition_penalty == 1.0f) return nullptr;
    return make_processor([penalty = double(config.repetition_penalty), seen = TokenCounts()](
                              const LogitsRow& row, const TokenHistory& history) mutable {
        constexpr double most = std::numeric_limits<float>::max();
        // The sign picks one of two, since a branch is hard to predict: 6 us for 2000 tokens,
        // not 17.
        const double factors[] = {penalty, 1.0}, divisors[] = {1.0, penalty};
        seen.update(history.tokens, 0);
        for (const auto& [token, count] : seen) {
            if (!row.has(token) || !std::isfinite(row.logits[token])) continue;
            const double value = double(row.logits[token]) - row.offset;
            const bool is_positive = value > 0;
            const double changed = value * factors[is_positive] / divisors[is_positive];
            row.logits[token] = float(std::clamp(changed + row.offset, -most, most));
        }
    });
}

/// OpenAI's penalties: subtracts from each generated token presence_penalty once and
/// frequency_penalty for each occurrence. The prompt does not count. Both in one: they share the
/// counts, and one subtraction rounds once.
ProcessorPtr make_presence_penalty(const GenerationConfig& config, const TokenRules& /*rules*/) {
    const float presence = config.presence_penalty, frequency = config.frequency_penalty;
    if (presence == 0.0f && frequency == 0.0f) return nullptr;
    return make_processor([presence, frequency, generated = TokenCounts()](
                              const LogitsRow& row, const TokenHistory& history) mutable {
        generated.update(history.tokens, history.prompt_length);
        for (const auto& [token, count] : generated)
            if (row.has(token)) row.logits[token] -= presence + frequency * float(count);
    });
}

/// Bans the tokens after which the last `size` tokens would stand in the sequence a second time.
ProcessorPtr make_no_repeat_ngram_size(const GenerationConfig& config,
                                       const TokenRules& /*rules*/) {
    const size_t size = config.no_repeat_ngram_size;
    if (size == 0 || size == GenerationConfig::unlimited) return nullptr;
    if (size == 1)
        return make_processor(
            [seen = TokenCounts()](const LogitsRow& row, const TokenHistory& history) mutable {
                seen.update(history.tokens, 0);
                for (const auto& [token, count] : seen) row.ban(token);
            });
    return make_processor(
        [followers = SharedPrompt(GramFollowers(size - 1)), found = std::vector<int64_t>()](
            const LogitsRow& row, const TokenHistory& history) mutable {
            followers.read(history).find(found);
            for (const int64_t token : found) row.ban(token);
        });
}

/// Bans the last token of a sequence where those before it stand at the end, prompt included. Those
/// of bad_words and of bad_words_ids in one: of thousands only those are looked at whose token
/// before the last is the latest.
ProcessorPtr make_bad_words_ids(const GenerationConfig& config, const TokenRules& rules) {
    const auto lists = token_lists(config, rules);
    if (lists->banned.empty()) return nullptr;
    return make_processor([lists](const LogitsRow& row, const TokenHistory& history) {
        const TokenSequences& all = lists->banned;
        const std::vector<int64_t>& tokens = history.tokens;
        for (const int64_t latest : {int64_t(-1), tokens.empty() ? -2 : tokens.back()}) {
            const auto [begin, end] =
                std::equal_range(all.begin(), all.end(), latest, ByTokenBeforeLast());
            for (auto sequence = begin; sequence != end; ++sequence)
                if (is_due(*sequence, tokens)) row.ban(sequence->back());
        }
    });
}

/// Bans the stop tokens until so many were generated. A text that its grammar lets only end, ends.
ProcessorPtr make_min_new_tokens(const GenerationConfig& config, const TokenRules& rules) {
    const size_t least = std::max(config.min_new_tokens, config.min_tokens);
    if (least == 0) return nullptr;
    const bool may_end = rules.grammar != nullptr;
    return make_processor([least, lists = token_lists(config, rules), may_end](
                              const LogitsRow& row, const TokenHistory& history) {
        const std::vector<int64_t>& stops = lists->stop;
        if (history.num_generated() >= least || (may_end && !has_other(row, stops))) return;
        for (const int64_t token : stops) row.ban(token);
    });
}

/// Bans what lies between the allowed tokens.
ProcessorPtr make_allowed_token_ids(const GenerationConfig& config, const TokenRules& rules) {
    if (config.allowed_token_ids.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            constexpr float banned = -std::numeric_limits<float>::infinity();
            float* rest = row.logits;
            for (const int64_t token : lists->allowed) {  // ascending
                if (!row.has(token)) continue;
                std::fill(rest, row.logits + token, banned);
                rest = row.logits + token + 1;
            }
            std::fill(rest, row.logits + row.size, banned);
        });
}

ProcessorPtr make_suppress_tokens(const GenerationConfig& config, const TokenRules& rules) {
    if (config.suppress_tokens.empty()) return nullptr;
    return make_processor(
        [lists = token_lists(config, rules)](const LogitsRow& row, const TokenHistory&) {
            for (const int64_t token : lists->suppressed) row.ban(token);
        });
}

}  // namespace pagewheel
