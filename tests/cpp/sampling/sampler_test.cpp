#include "sampling/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "sampling/log_probs.hpp"
#include "support/random_logits.hpp"
#include "support/sampling_reference.hpp"

namespace pagewheel {
namespace {

GenerationConfig sampling() {
    GenerationConfig config;
    config.do_sample = true;
    config.rng_seed = 1;
    return config;
}

/// A sequence that takes what it samples.
class Continuation {
public:
    explicit Continuation(const GenerationConfig& config, std::vector<int64_t> prompt = {},
                          size_t index = 0)
        : m_tokens(std::move(prompt)),
          m_prompt_length(m_tokens.size()),
          m_sampler(config, index, detected_isa()) {}

    SampledToken next_in_place(std::vector<float>& logits) {
        const SampledToken token =
            m_sampler.sample({m_tokens, m_prompt_length}, logits.data(), logits.size());
        m_tokens.push_back(token.id);
        return token;
    }
    SampledToken next(std::vector<float> logits) { return next_in_place(logits); }

private:
    std::vector<int64_t> m_tokens;
    size_t m_prompt_length;
    Sampler m_sampler;
};

TEST(BestTokens, AreThoseOfAFullSort) {
    for (size_t n : {1, 5, 64, 1000}) {
        std::vector<float> logits = random_logits(n, unsigned(n), 3.0f);
        for (size_t i = 2; i < n; i += 3) logits[i] = logits[i - 1];  // equals: the lower id first
        if (n > 10) logits[4] = -INFINITY, logits[7] = NAN;
        std::vector<TokenLogit> sorted, best;
        for (size_t i = 0; i < n; ++i)
            if (logits[i] >= -1000.0f) sorted.push_back({logits[i], int64_t(i)});
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](auto& a, auto& b) { return a.logit > b.logit; });
        for (size_t k : {0, 1, 2, 3, 17, 1000})
            for (Isa isa : {Isa::scalar, detected_isa()}) {
                find_best_tokens(logits.data(), n, k, -1000.0f, isa, best);
                ASSERT_EQ(best.size(), std::min(k, sorted.size()));
                for (size_t i = 0; i < best.size(); ++i) {
                    EXPECT_EQ(best[i].id, sorted[i].id) << "n=" << n << " k=" << k;
                    EXPECT_EQ(best[i].logit, sorted[i].logit);
                }
            }
    }
}

TEST(Sampler, GreedyTakesTheBest) {
    Continuation sequence{GenerationConfig()};
    EXPECT_EQ(sequence.next({0.1f, 3.0f, 2.0f}).id, 1);
}

TEST(Sampler, ReportsTheLogProbabilityOfWhatItSampledFrom) {
    const std::vector<float> logits = random_logits(100, 9, 3.0f);
    for (int variant = 0; variant < 3; ++variant) {
        GenerationConfig config = sampling();
        config.logprobs = 1;
        if (variant == 1) config.top_k = 5;
        if (variant == 2) config.do_sample = false;
        Continuation sequence(config);
        const auto expected = SamplingReference(logits).apply(config, false, 0).probabilities();
        for (int i = 0; i < 20; ++i) {
            const SampledToken token = sequence.next(logits);
            EXPECT_NEAR(token.log_prob, std::log(expected[size_t(token.id)]), 1e-4);
        }
    }
}

TEST(Sampler, RepeatsItselfForASeedAndDiffersBetweenSequences) {
    const std::vector<float> flat(1000, 0.0f);
    const auto draw = [&](size_t index) {
        Continuation sequence(sampling(), {}, index);
        std::vector<int64_t> ids;
        for (int i = 0; i < 10; ++i) ids.push_back(sequence.next(flat).id);
        return ids;
    };
    EXPECT_EQ(draw(0), draw(0));
    EXPECT_NE(draw(0), draw(1));
    GenerationConfig unseeded = sampling();
    unseeded.rng_seed.reset();
    Continuation a(unseeded), b(unseeded);
    std::vector<int64_t> from_a, from_b;
    for (int i = 0; i < 10; ++i) {
        from_a.push_back(a.next(flat).id);
        from_b.push_back(b.next(flat).id);
    }
    EXPECT_NE(from_a, from_b);
}

TEST(Sampler, RepetitionPenaltyCountsThePromptAndShrinksBothSigns) {
    GenerationConfig config;
    config.repetition_penalty = 2.0f;
    Continuation sequence(config, {0, 1});
    std::vector<float> logits{4.0f, -1.0f, 1.9f, -1.5f};
    EXPECT_EQ(sequence.next_in_place(logits).id, 0);
    EXPECT_EQ(logits, (std::vector<float>{2.0f, -2.0f, 1.9f, -1.5f}));
}

TEST(Sampler, PresenceAndFrequencyPenaltiesSubtractAlsoFromNegativeLogits) {
    GenerationConfig config;
    config.presence_penalty = 1.0f;
    config.frequency_penalty = 0.5f;
    Continuation sequence(config, {2});
    EXPECT_EQ(sequence.next({-1.0f, -5.0f, -5.0f}).id, 0);
    EXPECT_EQ(sequence.next({-1.0f, -5.0f, -5.0f}).id, 0);
    std::vector<float> logits{-1.0f, -5.0f, -2.9f};
    EXPECT_EQ(sequence.next_in_place(logits).id, 2);  // the prompt's token is free
    EXPECT_FLOAT_EQ(logits[0], -1.0f - 1.0f - 2 * 0.5f);
}

TEST(Sampler, GivesNoStopTokenBeforeMinNewTokens) {
    GenerationConfig config;
    config.min_new_tokens = 2;
    config.eos_token_id = 0;
    config.stop_token_ids = {1};
    Continuation sequence(config);
    EXPECT_EQ(sequence.next({9.0f, 8.0f, 1.0f}).id, 2);
    EXPECT_EQ(sequence.next({9.0f, 8.0f, 1.0f}).id, 2);
    EXPECT_EQ(sequence.next({9.0f, 8.0f, 1.0f}).id, 0);
}

/// Configs that take each way through the sampler.
std::vector<GenerationConfig> every_way() {
    std::vector<GenerationConfig> configs(11, sampling());
    configs[0].do_sample = false;
    configs[2].top_k = 3;
    configs[3].top_p = 0.9f;
    configs[4].min_p = 0.1f;
    configs[5].top_k = 30;
    configs[5].top_p = 0.9f;
    configs[6].typical_p = 0.8f;
    configs[7].top_n_sigma = 1.0f;
    configs[8].xtc_probability = 0.5f;
    configs[9].dynatemp_range = 0.5f;
    configs[10].mirostat = 2;
    return configs;
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
    const auto refused = [](const GenerationConfig& config,
                            std::vector<float> logits) -> std::string {
        Continuation sequence(config);
        try {
            sequence.next(std::move(logits));
        } catch (const LogitsError& error) {
            return error.what();
        }
        return "";
    };
    for (const GenerationConfig& config : every_way()) {
        EXPECT_EQ(refused(config, random_logits(50, 3, 3.0f)), "");
        EXPECT_NE(refused(config, std::vector<float>(50, NAN)).find("nan for token 0"),
                  std::string::npos);
        EXPECT_NE(refused(config, std::vector<float>(50, -INFINITY)).find("minus infinity"),
                  std::string::npos);
        for (const float bad : {NAN, INFINITY}) {
            std::vector<float> logits = random_logits(50, 3, 3.0f);
            logits[41] = bad;
            EXPECT_NE(refused(config, logits).find("for token 41"), std::string::npos) << bad;
        }
        std::vector<float> masked = random_logits(50, 3, 3.0f);
        masked[7] = -INFINITY;  // as models mask what is no token
        EXPECT_EQ(refused(config, masked), "");
    }
}

TEST(Sampler, TheLowestTemperatureTakesTheBestToken) {
    const std::vector<float> logits = random_logits(5000, 5, 3.0f);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    for (GenerationConfig config : every_way())
        for (const float temperature : {1e-3f, 1e-38f, 1e-39f, 1e-45f}) {
            config.temperature = temperature;
            config.logprobs = 1;
            config.dynatemp_range = 0.0f;  // it would raise the temperature
            Continuation sequence(config);
            for (int i = 0; i < 20; ++i) {
                const SampledToken token = sequence.next(logits);
                ASSERT_EQ(token.id, best) << temperature;
                if (config.do_sample) {
                    ASSERT_EQ(token.log_prob, 0.0f) << temperature;
                }
            }
        }
}

TEST(Sampler, ExtremeParametersGiveTokensAndFiniteLogProbabilities) {
    constexpr float most = std::numeric_limits<float>::max(), least = 1e-45f;
    const std::vector<float> logits = random_logits(300, 6, 3.0f);
    for (const GenerationConfig& way : every_way())
        for (const auto& change : std::vector<std::function<void(GenerationConfig&)>>{
                 [](auto& c) { c.temperature = most; },
                 [](auto& c) { c.repetition_penalty = least; },
                 [](auto& c) { c.repetition_penalty = most; }, [](auto& c) { c.top_p = least; },
                 [](auto& c) { c.min_p = least; },
                 [](auto& c) { c.min_p = std::nextafter(1.0f, 0.0f); },
                 [](auto& c) { c.top_p = std::nextafter(1.0f, 0.0f); },
                 [](auto& c) { c.min_p = c.top_p = c.temperature = least; }}) {
            GenerationConfig config = way;
            config.logprobs = 1;
            change(config);
            config.validate_values();
            Continuation sequence(config, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
            for (int i = 0; i < 20; ++i) {
                const SampledToken token = sequence.next(logits);
                ASSERT_TRUE(token.id >= 0 && token.id < 300);
                ASSERT_TRUE(std::isfinite(token.log_prob)) << i;
            }
        }
}

}  // namespace
}  // namespace pagewheel
