// Each filter against its definition: what it leaves, and how often what is left is drawn.
#include "sampling/candidate_filters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "sampling/sampler.hpp"
#include "support/kernel_access.hpp"
#include "support/random_logits.hpp"
#include "support/sampling_reference.hpp"

namespace pagewheel {
namespace {

using Row = std::vector<float>;
constexpr float infinity = std::numeric_limits<float>::infinity();

GenerationConfig config_of(const std::string& json) {
    GenerationConfig config;
    config.update_from_json(json);
    config.do_sample = true;
    config.rng_seed = 7;
    config.validate_values();
    return config;
}

/// Ids of what the config's filters leave, and their count with xtc_probability 0 or 1.
std::vector<size_t> left_by(const GenerationConfig& config, const Row& logits, Isa isa) {
    const LogitsMaxima row(logits.data(), logits.size(), isa);
    Candidates candidates(row, Temperature(config).inverse(row, isa), isa);
    for (const FilterKind& kind : candidate_filters())
        if (const auto filter = kind.make(config)) filter->apply(candidates, TokenRandom(1, 0, 0));
    const TokenPlace first = candidates.first(), last = candidates.last();
    std::vector<size_t> ids;
    for (size_t id = 0; id < logits.size(); ++id) {
        const float x = logits[id];
        const bool before = x > first.logit || (x == first.logit && id < first.id);
        const bool after = x < last.logit || (x == last.logit && id > last.id);
        if (!before && !after) ids.push_back(id);
    }
    return ids;
}

std::vector<size_t> left_by_definition(const GenerationConfig& config, const Row& logits,
                                       double bias) {
    return SamplingReference(logits, bias)
        .apply(config, config.xtc_probability == 1, 2 * double(config.mirostat_tau))
        .ids();
}

std::vector<size_t> left(const std::string& json, const Row& logits) {
    const auto ids = left_by(config_of(json), logits, detected_isa());
    EXPECT_EQ(ids, left_by(config_of(json), logits, Isa::scalar)) << json;
    return ids;
}

using Ids = std::vector<size_t>;

TEST(TopK, KeepsTheFirstKAndOfEqualsTheLowerIds) {
    EXPECT_EQ(left(R"({"top_k": 2})", {1, 3, 2}), (Ids{1, 2}));
    EXPECT_EQ(left(R"({"top_k": 2})", {2, 1, 2, 2}), (Ids{0, 2}));
    EXPECT_EQ(left(R"({"top_k": 9})", {2, 1, 2, 2}), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(left(R"({"top_k": 3})", Row(5000, 1.5f)), (Ids{0, 1, 2}));
}

TEST(TopP, KeepsTheFewestThatReachTheirShare) {
    const Row logits{std::log(0.25f), std::log(0.5f), std::log(0.125f), std::log(0.125f)};
    EXPECT_EQ(left(R"({"top_p": 0.49})", logits), (Ids{1}));
    EXPECT_EQ(left(R"({"top_p": 0.51})", logits), (Ids{0, 1}));
    EXPECT_EQ(left(R"({"top_p": 0.8})", logits), (Ids{0, 1, 2}));
    EXPECT_EQ(left(R"({"top_p": 1e-40})", logits), (Ids{1}));
    EXPECT_EQ(left(R"({"top_p": 0.4994})", Row(4000, -3.0f)).size(), 1998u);
    EXPECT_EQ(left(R"({"top_p": 0.4994})", Row(4000, -3.0f)).back(), 1997u);
}

TEST(MinP, KeepsWhatIsAsLikelyAsItsShareOfTheBest) {
    const Row logits{0.0f, std::log(0.5f), std::log(0.25f), std::log(0.125f)};
    EXPECT_EQ(left(R"({"min_p": 0.24})", logits), (Ids{0, 1, 2}));
    EXPECT_EQ(left(R"({"min_p": 0.26})", logits), (Ids{0, 1}));
    EXPECT_EQ(left(R"({"min_p": 0.999})", logits), (Ids{0}));
    EXPECT_EQ(left(R"({"min_p": 0.24, "temperature": 0.5})", logits), (Ids{0, 1}));
}

TEST(TypicalP, LeavesOutTheBestWhereOthersAreNearerToTheEntropy) {
    // 0.4 and sixty of 0.01: the entropy is 3.13, of which 0.01 (4.6) is nearer than 0.4 (0.9).
    Row logits(61, std::log(0.01f));
    logits[30] = std::log(0.4f);
    const Ids ids = left(R"({"typical_p": 0.3})", logits);
    EXPECT_EQ(ids.size(), 60u) << "all that are equally near";
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 30u), 0);
    EXPECT_EQ(left(R"({"typical_p": 0.7})", logits).size(), 61u);
}

TEST(TopNSigma, MeasuresFromTheBestInDeviationsOfWhatIsNotMasked) {
    // Mean 2, deviation 2.
    const Row logits{0, 0, 4, 4, -infinity, -infinity};
    EXPECT_EQ(left(R"({"top_n_sigma": 1.99})", logits), (Ids{2, 3}));
    EXPECT_EQ(left(R"({"top_n_sigma": 2.01})", logits), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(left(R"({"top_n_sigma": 2.01, "temperature": 9})", logits), (Ids{0, 1, 2, 3}));
}

TEST(Xtc, LeavesTheLeastOfThoseFromTheThreshold) {
    const Row logits{std::log(0.3f), std::log(0.4f), std::log(0.2f), std::log(0.1f)};
    const std::string on = R"({"xtc_probability": 1, "xtc_threshold": )";
    EXPECT_EQ(left(on + "0.19}", logits), (Ids{2, 3}));
    EXPECT_EQ(left(on + "0.25}", logits), (Ids{0, 2, 3}));
    EXPECT_EQ(left(on + "0.35}", logits), (Ids{0, 1, 2, 3})) << "one alone stays";
    EXPECT_EQ(left(on + "0.5}", logits), (Ids{0, 1, 2, 3})) << "none is so likely";
    EXPECT_EQ(left(on + "0.1}", {2, 2, 2, 0}), (Ids{2, 3})) << "of equals the last";
}

TEST(Mirostat, LeavesOutWhatSurprisesMoreThanMu) {
    const Row logits{0.0f, std::log(0.5f), std::log(0.25f), std::log(0.25f)};  // 1, 2, 3, 3 bits
    EXPECT_EQ(left(R"({"mirostat": 2, "mirostat_tau": 1.1})", logits), (Ids{0, 1}));  // mu: 2.2
    EXPECT_EQ(left(R"({"mirostat": 2, "mirostat_tau": 1.6})", logits), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(left(R"({"mirostat": 2, "mirostat_tau": 0.1})", logits), (Ids{0}))
        << "the best stays";
}

TEST(CandidateFilters, TheTableHasEachParameterOfSamplingInOrder) {
    GenerationConfig config;
    for (const FilterKind& kind : candidate_filters())
        EXPECT_FALSE(kind.make(config)) << kind.parameter;
    std::vector<std::string> order;
    for (const FilterKind& kind : candidate_filters()) {
        order.push_back(kind.parameter);
        const bool is_whole = kind.parameter == "top_k" || kind.parameter == "mirostat";
        GenerationConfig one;
        one.update_from_json("{\"" + kind.parameter + "\": " + (is_whole ? "2" : "0.5") + "}");
        for (const FilterKind& other : candidate_filters())
            EXPECT_EQ(other.make(one) != nullptr, &other == &kind) << kind.parameter;
    }
    EXPECT_EQ(order, (std::vector<std::string>{"top_n_sigma", "top_k", "top_p", "min_p",
                                               "typical_p", "xtc_probability", "mirostat"}));
    config.top_k = 0;  // as unlimited
    EXPECT_FALSE(make_top_k(config));
}

template <class T>
T one_of(std::mt19937& random, const std::vector<T>& values) {
    return values[random() % values.size()];
}

Row random_row(std::mt19937& random) {
    const auto [mean, deviation] = one_of<std::pair<float, float>>(
        random, {{0.0f, 0.001f}, {0.0f, 1.0f}, {0.0f, 3.0f}, {-20.0f, 1.0f}, {20.0f, 3.0f}});
    std::normal_distribution<float> normal(mean, deviation);
    Row logits(one_of<size_t>(random, {1, 2, 5, 255, 256, 257, 700, 3000, 20000}));
    const unsigned kind = random() % 5;
    for (float& logit : logits) {
        logit = normal(random);
        if (kind == 1) logit = std::round(logit * 4) / 4;  // many equals, as of bf16
        if (kind == 2 && random() % 3 == 0) logit = -infinity;
        if (kind == 3) logit = 2.5f;
    }
    if (kind == 4)  // peaked
        for (size_t i = 0; i < logits.size(); i += 1 + logits.size() / 7)
            logits[i] += float(random() % 20);
    if (!std::isfinite(*std::max_element(logits.begin(), logits.end()))) logits[0] = 0;
    return logits;
}

GenerationConfig random_config(std::mt19937& random) {
    GenerationConfig config = config_of("{}");
    config.temperature = one_of<float>(random, {0.01f, 0.3f, 1.0f, 1.0f, 5.0f, 1e8f});
    const auto maybe = [&] { return random() % 4 == 0; };
    if (maybe()) config.dynatemp_range = one_of<float>(random, {0.2f, 0.9f, 3.0f});
    if (maybe()) config.top_n_sigma = one_of<float>(random, {0.5f, 1.0f, 3.0f});
    if (maybe()) config.top_k = one_of<size_t>(random, {1, 7, 64, 129, 1000, 6000});
    if (maybe()) config.top_p = one_of<float>(random, {1e-6f, 0.3f, 0.9f, 0.95f, 0.9999f});
    if (maybe()) config.min_p = one_of<float>(random, {0.001f, 0.05f, 0.5f});
    if (maybe()) config.typical_p = one_of<float>(random, {0.001f, 0.2f, 0.9f, 0.95f});
    if (maybe()) {
        config.xtc_probability = 1;
        config.xtc_threshold = one_of<float>(random, {0.0001f, 0.1f, 0.4f});
    }
    if (maybe()) {
        config.mirostat = 2;
        config.mirostat_tau = one_of<float>(random, {0.5f, 3.0f, 7.0f});
    }
    return config;
}

std::string described(const GenerationConfig& c, const Row& logits) {
    std::string text = "n " + std::to_string(logits.size());
    for (const auto& [name, value] : std::vector<std::pair<const char*, double>>{
             {"temperature", c.temperature},
             {"dynatemp_range", c.dynatemp_range},
             {"top_n_sigma", c.top_n_sigma},
             {"top_k", double(c.top_k)},
             {"top_p", c.top_p},
             {"min_p", c.min_p},
             {"typical_p", c.typical_p},
             {"xtc", c.xtc_probability * c.xtc_threshold},
             {"mirostat", double(c.mirostat) * c.mirostat_tau}})
        text += std::string(" ") + name + " " + std::to_string(value);
    return text;
}

// Whatever moves a limit by a few millionths may change which tokens are left: weights are floats.
TEST(CandidateFilters, LeaveWhatTheirDefinitionsInDoubleLeave) {
    std::mt19937 random(3);
    size_t num_rounded = 0, num_large = 0;
    constexpr size_t rounds = 3000;
    for (size_t round = 0; round < rounds; ++round) {
        const Row logits = random_row(random);
        const GenerationConfig config = random_config(random);
        const Ids expected = left_by_definition(config, logits, 0);
        for (const Isa isa : available_isas()) {
            const Ids found = left_by(config, logits, isa);
            if (found == expected) continue;
            ++num_rounded;
            // Of those that are equally far from the centre, on both sides, rounding may take
            // either.
            Ids others;
            std::set_symmetric_difference(found.begin(), found.end(), expected.begin(),
                                          expected.end(), std::back_inserter(others));
            bool is_rounded = config.typical_p < 1 && others.size() <= 2 + expected.size() / 20;
            for (const double bias : {1e-7, 3e-7, 1e-6, 3e-6, 1e-5})
                is_rounded = is_rounded || found == left_by_definition(config, logits, bias) ||
                             found == left_by_definition(config, logits, -bias);
            ASSERT_TRUE(is_rounded) << isa.name() << " left " << found.size() << " instead of "
                                    << expected.size() << ": " << described(config, logits);
        }
        num_large += expected.size() > 1000;
    }
    EXPECT_LT(num_rounded, rounds / 20);
    EXPECT_GT(num_large, 50u);
}

void expect_draws_by_definition(const char* json, const Row& logits, Isa isa, size_t count) {
    const GenerationConfig config = config_of(json);
    std::vector<size_t> counts(logits.size());
    RandomSelection selection(config, config.rng_seed, 0, isa);
    for (size_t i = 0; i < count; ++i) {
        // Mirostat changes from token to token: each draw is the first one of another sequence.
        if (config.mirostat == 0)
            ++counts[size_t(selection.select(logits.data(), logits.size(), i).id)];
        else
            ++counts[size_t(RandomSelection(config, config.rng_seed, i, isa)
                                .select(logits.data(), logits.size(), 0)
                                .id)];
    }
    const auto expected = expected_probabilities(config, logits);
    EXPECT_LT(std::abs(chi_square_deviations(counts, expected)), 4.0)
        << json << ' ' << isa.name() << ' ' << logits.size();
}

TEST(CandidateFilters, TokensAreDrawnAsOftenAsTheirDefinitionsSay) {
    const Row logits = random_logits(120, 5, 2.0f);
    for (const char* json :
         {R"({})", R"({"temperature": 0.5})", R"({"temperature": 3})", R"({"top_k": 7})",
          R"({"top_p": 0.8})", R"({"min_p": 0.05})", R"({"typical_p": 0.7})",
          R"({"top_n_sigma": 1.5})", R"({"xtc_probability": 0.3, "xtc_threshold": 0.05})",
          R"({"dynatemp_range": 0.7, "dynatemp_exponent": 2})",
          R"({"mirostat": 2, "mirostat_tau": 2})", R"({"top_k": 40, "top_p": 0.7, "min_p": 0.1})",
          R"({"top_p": 0.9, "typical_p": 0.8})",
          R"({"top_k": 30, "typical_p": 0.8, "xtc_probability": 0.5, "xtc_threshold": 0.06})",
          R"({"temperature": 1.5, "dynatemp_range": 0.5, "top_n_sigma": 2, "top_k": 60,
              "top_p": 0.95, "min_p": 0.02, "typical_p": 0.9, "xtc_probability": 0.5,
              "xtc_threshold": 0.05, "mirostat": 2, "mirostat_tau": 3})"})
        expect_draws_by_definition(json, logits, detected_isa(), draws(200000));
}

// Many groups of tokens, of which a peaked row has most in none that matters, and many runs of a
// draw.
TEST(CandidateFilters, TokensOfLongRowsAreDrawnAsOftenAsTheirDefinitionsSay) {
    const Row rows[] = {random_logits(5003, 11, 4.0f), random_logits(5003, 12, 1.0f)};
    for (const Row& logits : rows)
        for (const Isa isa : available_isas())
            for (const char* json :
                 {R"({})", R"({"top_p": 0.9})", R"({"top_k": 1500, "top_p": 0.6})",
                  R"({"top_n_sigma": 2, "top_k": 300})", R"({"min_p": 0.02, "typical_p": 0.9})",
                  R"({"typical_p": 0.6})",
                  R"({"xtc_probability": 0.5, "xtc_threshold": 0.002, "mirostat": 2,
                      "mirostat_tau": 5})"})
                expect_draws_by_definition(json, logits, isa,
                                           isa == Isa::scalar ? 2000 : draws(20000));
}

// XTC may leave only tokens whose weights are 0 as floats. 700 tokens: what is past them is not
// ours.
TEST(CandidateFilters, OneIsDrawnWhereAllThatIsLeftWeighsNothing) {
    Row logits(700, -infinity);
    logits[3] = 0;
    logits[5] = -4.7f;
    logits[8] = -4.6f;
    const GenerationConfig config =
        config_of(R"({"temperature": 0.05, "xtc_probability": 1, "xtc_threshold": 1e-40})");
    for (const Isa isa : available_isas())
        for (size_t i = 0; i < 20; ++i) {
            const SampledToken token = RandomSelection(config, config.rng_seed, i, isa)
                                           .select(logits.data(), logits.size(), i);
            EXPECT_TRUE(token.id == 5 || token.id == 8) << isa.name() << ' ' << token.id;
            EXPECT_TRUE(std::isfinite(token.log_prob)) << isa.name();
        }
}

TEST(Mirostat, ItsLimitFollowsTheSurpriseOfWhatWasDrawn) {
    const GenerationConfig config =
        config_of(R"({"mirostat": 2, "mirostat_tau": 3, "mirostat_eta": 0.2, "top_k": 200})");
    RandomSelection selection(config, config.rng_seed, 0, detected_isa());
    double mu = 6, mean = 0;
    constexpr size_t count = 2000;
    for (size_t i = 0; i < count; ++i) {
        const Row logits = random_logits(500, unsigned(i), 2.0f);
        const SampledToken token = selection.select(logits.data(), logits.size(), i);
        const auto p = SamplingReference(logits).apply(config, false, mu).probabilities();
        ASSERT_GT(p[size_t(token.id)], 0.0) << "token " << i;
        ASSERT_NEAR(token.log_prob, std::log(p[size_t(token.id)]), 1e-4);
        mu -= 0.2 * (-std::log2(p[size_t(token.id)]) - 3);
        mean -= std::log2(p[size_t(token.id)]) / double(count);
    }
    EXPECT_NEAR(mean, 3.0, 0.1);
}

}  // namespace
}  // namespace pagewheel
