#include "sampling/beam_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "sampling/logits_chain.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

/// Logits that depend on all tokens before.
std::vector<float> logits_after(const Tokens& tokens, size_t vocabulary, unsigned seed) {
    std::seed_seq sequence(tokens.begin(), tokens.end());
    std::vector<unsigned> seeds(1);
    sequence.generate(seeds.begin(), seeds.end());
    std::mt19937 random(seeds.front() ^ seed);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
    double total = 0;
    for (float logit : logits) total += std::exp(double(logit));
    std::vector<double> result;
    for (float logit : logits) result.push_back(double(logit) - std::log(total));
    return result;
}

/// Does with sequences what the step loop does with caches, and checks what it is told to do.
class Sequences {
public:
    Sequences(const GenerationConfig& config, const Tokens& prompt, size_t max_new_tokens,
              size_t vocabulary, unsigned seed)
        : m_search(config, prompt.size(), max_new_tokens, detected_isa(), LogitsChain(config)),
          m_num_beams(config.num_beams),
          m_vocabulary(vocabulary),
          m_seed(seed) {
        m_slots[0] = prompt;
    }

    std::vector<Hypothesis> run() {
        for (m_num_steps = 0; !m_search.is_done(); ++m_num_steps) {
            for (const auto& [slot, tokens] : m_slots) {
                EXPECT_FALSE(m_search.is_ready());
                std::vector<float> logits = logits_after(tokens, m_vocabulary, m_seed);
                m_search.score(slot, tokens, logits.data(), logits.size());
            }
            EXPECT_TRUE(m_search.is_ready());
            move(m_search.advance([](size_t, int64_t) { return false; }));
        }
        return m_search.best();
    }
    size_t num_steps() const { return m_num_steps; }
    size_t num_forks = 0, num_stays = 0;
    bool all_different = true;

private:
    void move(const BeamMoves& moves) {
        const std::map<size_t, Tokens> before = m_slots;
        std::set<size_t> from, to;
        for (const auto& fork : moves.forks) from.insert(fork.from);
        for (const auto& fork : moves.forks) {
            EXPECT_TRUE(before.count(fork.from));
            EXPECT_LT(fork.to, m_num_beams);
            EXPECT_FALSE(from.count(fork.to)) << "a slot is overwritten that is forked from";
            EXPECT_TRUE(to.insert(fork.to).second);
            m_slots[fork.to] = before.at(fork.from);
        }
        for (size_t slot : moves.dropped) EXPECT_EQ(m_slots.erase(slot), 1u);
        // One token for every sequence, and a sequence is forked only for its second continuation.
        EXPECT_EQ(moves.appended.size(), m_slots.size());
        std::set<size_t> appended;
        for (const auto& [slot, token] : moves.appended) {
            EXPECT_TRUE(appended.insert(slot).second);
            m_slots.at(slot).push_back(token);
        }
        for (size_t slot : from) EXPECT_TRUE(appended.count(slot));
        num_forks += moves.forks.size();
        num_stays += moves.appended.size() - moves.forks.size();
        std::set<Tokens> different;
        for (const auto& [slot, tokens] : m_slots) different.insert(tokens);
        all_different = all_different && different.size() == m_slots.size();
    }

    BeamSearch m_search;
    std::map<size_t, Tokens> m_slots;
    size_t m_num_beams, m_vocabulary, m_num_steps = 0;
    unsigned m_seed;
};

/// Final scores of all sequences there are.
void enumerate(const GenerationConfig& config, Tokens& tokens, size_t prompt_length, size_t longest,
               size_t vocabulary, unsigned seed, double sum,
               std::vector<std::pair<double, Tokens>>& all) {
    const std::vector<double> next = log_softmax(logits_after(tokens, vocabulary, seed));
    for (size_t token = 0; token < vocabulary; ++token) {
        tokens.push_back(int64_t(token));
        const size_t length = tokens.size() - prompt_length;
        const double total = sum + next[token];
        if (config.is_stop_token(int64_t(token)) || length == longest)
            all.emplace_back(total / std::pow(double(length), double(config.length_penalty)),
                             Tokens(tokens.begin() + long(prompt_length), tokens.end()));
        else
            enumerate(config, tokens, prompt_length, longest, vocabulary, seed, total, all);
        tokens.pop_back();
    }
}

TEST(BeamSearch, WithEnoughBeamsFindsTheBestOfAllSequences) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const size_t vocabulary = 2 + random() % 4, longest = 1 + random() % 4;
        GenerationConfig config;
        config.num_beams = 1;
        for (size_t i = 0; i < longest; ++i) config.num_beams *= vocabulary;
        config.num_return_sequences = std::min<size_t>(config.num_beams, 1 + random() % 20);
        config.length_penalty = float(int(random() % 9) - 3) / 2;
        config.stop_criteria = StopCriteria::NEVER;
        config.eos_token_id = int64_t(random() % vocabulary);
        if (random() % 3 == 0) config.stop_token_ids = {int64_t(random() % vocabulary)};
        Tokens prompt{7, int64_t(seed)};
        std::vector<std::pair<double, Tokens>> all;
        enumerate(config, prompt, prompt.size(), longest, vocabulary, seed, 0.0, all);
        std::sort(all.begin(), all.end(), std::greater<>());

        Sequences sequences(config, prompt, longest, vocabulary, seed);
        const std::vector<Hypothesis> found = sequences.run();
        ASSERT_EQ(found.size(), std::min(config.num_return_sequences, all.size()));
        for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_EQ(found[i].tokens, all[i].second) << i;
            EXPECT_NEAR(found[i].score, all[i].first, 1e-4);
            const bool stops = config.is_stop_token(found[i].tokens.back());
            EXPECT_EQ(found[i].finish_reason,
                      stops ? GenerationFinishReason::STOP : GenerationFinishReason::LENGTH);
        }
    }
}

TEST(BeamSearch, MovesSequencesInPlaceAndForksOnlyForSecondContinuations) {
    size_t num_forks = 0, num_stays = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        GenerationConfig config;
        config.num_beam_groups = 1 + random() % 3;
        config.num_beams = config.num_beam_groups * (1 + random() % 5);
        if (config.num_beams == 1) continue;
        config.num_return_sequences = config.num_beams;
        config.diversity_penalty = config.num_beam_groups > 1 ? 0.7f : 0.0f;
        config.stop_criteria = StopCriteria(random() % 3);
        config.eos_token_id = 3;
        Sequences sequences(config, {1, 2}, 30, 50, seed);
        const std::vector<Hypothesis> found = sequences.run();
        EXPECT_EQ(found.size(), config.num_beams);
        EXPECT_TRUE(config.num_beam_groups > 1 || sequences.all_different);
        EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                                   [](auto& a, auto& b) { return a.score > b.score; }));
        num_forks += sequences.num_forks;
        num_stays += sequences.num_stays;
    }
    EXPECT_GT(num_forks, 1000u);
    EXPECT_GT(num_stays, num_forks);
}

TEST(BeamSearch, EndsAsItsCriterionSays) {
    const auto num_steps = [](StopCriteria criterion) {
        GenerationConfig config;
        config.num_beams = 3;
        config.length_penalty = 1.5f;
        config.stop_criteria = criterion;
        config.stop_token_ids = {1, 2, 3, 4, 5, 6};
        size_t steps = 0;
        for (unsigned seed = 0; seed < 20; ++seed) {
            Sequences sequences(config, {1}, 60, 20, seed);
            sequences.run();
            steps += sequences.num_steps();
        }
        return steps;
    };
    const size_t early = num_steps(StopCriteria::EARLY),
                 heuristic = num_steps(StopCriteria::HEURISTIC),
                 never = num_steps(StopCriteria::NEVER);
    EXPECT_LT(early, heuristic);
    EXPECT_LT(heuristic, never);
    EXPECT_LE(never, 20u * 60u);
}

TEST(BeamSearch, WhereNothingIsAllowedGivesWhatThereIs) {
    GenerationConfig config;
    config.num_beams = 2;
    config.num_return_sequences = 2;
    config.no_repeat_ngram_size = 1;  // of three tokens none is left after three steps
    Sequences sequences(config, {9}, 100, 3, 1);
    const std::vector<Hypothesis> found = sequences.run();
    ASSERT_EQ(found.size(), 2u);
    for (const Hypothesis& hypothesis : found) {
        EXPECT_EQ(hypothesis.tokens.size(), 3u);
        EXPECT_EQ(hypothesis.finish_reason, GenerationFinishReason::LENGTH);
    }
}

TEST(BeamSearch, ExtremeParametersGiveFiniteScoresInOrder) {
    constexpr float most = std::numeric_limits<float>::max();
    for (unsigned seed = 0; seed < 10; ++seed)
        for (const auto& change : std::vector<std::function<void(GenerationConfig&)>>{
                 [](auto& c) { c.length_penalty = most; },
                 [](auto& c) { c.length_penalty = -most; },
                 [](auto& c) { c.length_penalty = 1e-45f; },
                 [](auto& c) { c.repetition_penalty = most; },
                 [](auto& c) { c.repetition_penalty = 1e-45f; },
                 [](auto& c) { c.repetition_penalty = most, c.length_penalty = -most; },
                 [](auto& c) { c.num_beam_groups = 2, c.diversity_penalty = most; },
                 [](auto& c) {
                     c.num_beam_groups = 4;
                     c.diversity_penalty = most;
                     c.length_penalty = most;
                 }}) {
            GenerationConfig config;
            config.num_beams = config.num_return_sequences = 4;
            config.eos_token_id = 3;
            change(config);
            config.validate();
            const auto found = Sequences(config, {1, 2}, 12, 8, seed).run();
            ASSERT_EQ(found.size(), 4u);
            for (size_t i = 0; i < found.size(); ++i) {
                ASSERT_TRUE(std::isfinite(found[i].score)) << "seed " << seed;
                if (i > 0) {
                    ASSERT_LE(found[i].score, found[i - 1].score);
                }
            }
        }
}

TEST(BeamSearch, RefusesLogitsThatAreNoNumbers) {
    GenerationConfig config;
    config.num_beams = 2;
    for (const float bad : {NAN, INFINITY}) {
        BeamSearch search(config, 1, 10, detected_isa(), LogitsChain(config));
        std::vector<float> logits = logits_after({1}, 40, 1);
        logits[17] = bad;
        EXPECT_THROW(search.score(0, {1}, logits.data(), logits.size()), LogitsError);
    }
}

TEST(BeamSearch, AForkedBeamIsPenalisedForTheTokensOfItsOwn) {
    size_t num_forks = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        GenerationConfig config;
        config.num_beams = config.num_return_sequences = 4;
        config.repetition_penalty = 1.5f;
        config.presence_penalty = 0.5f;
        config.frequency_penalty = 0.25f;
        config.eos_token_id = 3;
        const Tokens prompt{1, 2, 1};
        Sequences sequences(config, prompt, 15, 10, seed);
        for (const Hypothesis& hypothesis : sequences.run()) {
            Tokens tokens = prompt;
            for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
                std::vector<float> logits = logits_after(tokens, 10, seed);
                const auto token = size_t(hypothesis.tokens[i]);
                const double total = double(logits[token]) - log_softmax(logits)[token];
                LogitsChain(config).process({logits.data(), logits.size(), total},
                                            {tokens, prompt.size()});
                EXPECT_NEAR(hypothesis.log_probs[i], double(logits[token]) - total, 1e-4) << i;
                tokens.push_back(hypothesis.tokens[i]);
            }
        }
        num_forks += sequences.num_forks;
    }
    EXPECT_GT(num_forks, 100u);
}

}  // namespace
}  // namespace pagewheel
