// What each policy drops, in small numbers worked by hand. Blocks have 2 tokens here.
#include "pagewheel/errors.hpp"
#include "pagewheel/eviction_policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "pagewheel/cache_eviction_config.hpp"

namespace pagewheel {
namespace {

/// A cache of `scores.size()` tokens of which units [first, last) may go.
struct Scenario {
    std::vector<float> scores;
    size_t unit_size = 2, first = 1, last = 5;
    std::vector<int32_t> lifetimes = std::vector<int32_t>(scores.size(), 1);
    std::vector<std::vector<float>> keys = {};  // by token, one kv head
    bool is_prefilling = false;

    std::vector<size_t> dropped(EvictionPolicy& policy, size_t count) const {
        EvictionView view;
        view.is_prefilling = is_prefilling;
        view.num_tokens = scores.size();
        view.unit_size = unit_size;
        view.first_unit = first;
        view.last_unit = last;
        view.scores = scores.data();
        view.lifetimes = lifetimes.data();
        view.kv_heads = 1;
        view.head_size = keys.empty() ? 0 : keys[0].size();
        view.read_keys = [this](size_t begin, size_t end, float* out) {
            for (size_t i = begin; i < end; ++i)
                out = std::copy(keys[i].begin(), keys[i].end(), out);
        };
        std::vector<size_t> result;
        policy.drop(view, count, result);
        std::sort(result.begin(), result.end());
        return result;
    }
};

std::shared_ptr<EvictionPolicy> policy(const std::string& name) {
    CacheEvictionConfig config;
    config.policy = name;
    return make_policy(config);
}

using Units = std::vector<size_t>;

TEST(EvictionPolicies, SumDropsTheBlocksOfLeastAttention) {
    const auto sum = policy("sum");
    //                       start    block 1  block 2  block 3  block 4  recent
    const Scenario scenario{{0, 0, 3, 1, 1, 1, 9, 0, 0, 2.5f, 0, 0}};
    EXPECT_EQ(scenario.dropped(*sum, 1), Units({2}));
    EXPECT_EQ(scenario.dropped(*sum, 2), Units({2, 4}));
    EXPECT_EQ(scenario.dropped(*sum, 4), Units({1, 2, 3, 4}));
}

TEST(EvictionPolicies, OfEqualBlocksTheOlderGo) {
    for (const char* name : {"sum", "norm_sum", "snapkv", "tova"}) {
        const auto equal = policy(name);
        EXPECT_EQ((Scenario{std::vector<float>(12, 1)}.dropped(*equal, 2)), Units({1, 2})) << name;
        // A region nobody looked at goes first, from its beginning.
        const Scenario zeroed{{5, 5, 1, 1, 0, 0, 0, 0, 1, 1, 5, 5}};
        EXPECT_EQ(zeroed.dropped(*equal, 1), Units({2})) << name;
        EXPECT_EQ(zeroed.dropped(*equal, 3), Units({1, 2, 3})) << name;
    }
}

TEST(EvictionPolicies, NormSumDividesByTheQueriesThatCouldSeeAToken) {
    Scenario scenario{{0, 0, 8, 8, 6, 6, 3, 3, 2, 2, 0, 0}};
    scenario.lifetimes = {9, 9, 8, 8, 3, 3, 2, 2, 2, 2, 1, 1};
    // Per query: 1, 2, 1.5, 1.
    EXPECT_EQ(scenario.dropped(*policy("norm_sum"), 2), Units({1, 4}));
    EXPECT_EQ(scenario.dropped(*policy("sum"), 2), Units({3, 4}));
    scenario.lifetimes.assign(12, 0);  // nothing observed: as if once
    EXPECT_EQ(scenario.dropped(*policy("norm_sum"), 1), Units({4}));
}

TEST(EvictionPolicies, SingleTokensAreRankedAlone) {
    const Scenario scenario{{0, 0, 3, 1, 1, 1, 9, 0, 0, 2.5f, 0, 0}, 1, 2, 10};
    EXPECT_EQ(scenario.dropped(*policy("sum"), 4), Units({3, 4, 7, 8}));
    EXPECT_EQ(scenario.dropped(*policy("streaming"), 3), Units({2, 3, 4}));
}

TEST(EvictionPolicies, StreamingDropsTheOldest) {
    const Scenario scenario{{9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0}};
    EXPECT_EQ(scenario.dropped(*policy("streaming"), 1), Units({1}));
    EXPECT_EQ(scenario.dropped(*policy("streaming"), 3), Units({1, 2, 3}));
    EXPECT_EQ(policy("streaming")->observed().decode, 0u);
}

TEST(EvictionPolicies, KeyNormDropsTheLongestKeys) {
    Scenario scenario{std::vector<float>(12, 0)};
    scenario.keys = {{99, 0}, {99, 0}, {3, 4}, {0, 1}, {1, 0},  {0, 1},
                     {0, 7},  {0, 0},  {2, 0}, {2, 0}, {99, 0}, {99, 0}};
    // Norms per block: 6, 2, 7, 4.
    EXPECT_EQ(scenario.dropped(*policy("key_norm"), 1), Units({3}));
    EXPECT_EQ(scenario.dropped(*policy("key_norm"), 2), Units({1, 3}));
}

TEST(EvictionPolicies, KeyDiffDropsTheKeysNearestToTheMean) {
    Scenario scenario{std::vector<float>(12, 0)};
    scenario.keys.assign(12, {5, 0});              // the mean points along x
    scenario.keys[4] = scenario.keys[5] = {0, 1};  // block 2 does not
    scenario.keys[8] = scenario.keys[9] = {1, 1};  // block 4 a little
    EXPECT_EQ(scenario.dropped(*policy("key_diff"), 2), Units({1, 3}));
    EXPECT_EQ(scenario.dropped(*policy("key_diff"), 3), Units({1, 3, 4}));
}

TEST(EvictionPolicies, HybridKeepsWhatIsAttendedOrWhileReadingUnlike) {
    //               start  1     2     3     4     recent
    Scenario scenario{{0, 0, 1, 1, 2, 2, 0, 0, 9, 9, 0, 0}};
    scenario.keys.assign(12, {5, 0});
    scenario.keys[6] = scenario.keys[7] = {0, 1};  // block 3: unseen, unlike the others
    EXPECT_EQ(scenario.dropped(*policy("hybrid"), 1), Units({3}));
    scenario.is_prefilling = true;
    // By keys 1, 2 and 4 are equal, however much attention they got.
    EXPECT_EQ(scenario.dropped(*policy("hybrid"), 1), Units({1}));
    EXPECT_EQ(scenario.dropped(*policy("hybrid"), 3), Units({1, 2, 4}));
    EXPECT_EQ(scenario.dropped(*policy("norm_sum"), 1), Units({3}));
    EXPECT_EQ(policy("hybrid")->observed().decode, ObservedQueries::all);
}

TEST(EvictionPolicies, AdaptiveRkvKeepsTheMassAndThenTheUnlike) {
    CacheEvictionConfig config;
    config.aggregation_mode = AggregationMode::ADAPTIVE_RKV;
    config.adaptive_rkv_config = AdaptiveRKVConfig(0.5, 4);
    const auto adaptive = make_policy(config);
    EXPECT_EQ(adaptive->observed().decode, 4u);
    //               start  1     2     3     4     recent
    Scenario scenario{{0, 0, 6, 0, 3, 0, 0, 1, 0, 0, 0, 0}};
    scenario.keys.assign(12, {1, 0});
    scenario.keys[8] = scenario.keys[9] = {0, 1};  // block 4: unlike the others, unseen
    // Block 1 has 60% of the attention and stays; block 4 stays for being unlike.
    EXPECT_EQ(scenario.dropped(*adaptive, 2), Units({2, 3}));
    // With all of the mass to be kept, attention alone decides.
    config.adaptive_rkv_config.attention_mass = 1;
    EXPECT_EQ(scenario.dropped(*make_policy(config), 2), Units({3, 4}));
}

TEST(EvictionPolicies, KVCrushKeepsRepresentativesOfWhatWouldGo) {
    CacheEvictionConfig config;
    config.kvcrush_config = KVCrushConfig(1, KVCrushAnchorPointMode::ZEROS);
    config.aggregation_mode = AggregationMode::SUM;
    EXPECT_EQ(config.policy_name(), "kvcrush");
    const Scenario scenario{{0, 0, 9, 9, 1, 3, 0, 0, 2, 1, 0, 0}};
    // 2 of 4 go: block 1 stays by attention, one of 2, 3, 4 as a representative. The 4 tokens of
    // most attention are those of block 1, one of block 2 and one of block 4: distances to zeros
    // 1, 0, 1, and the middle one in that order (3, 2, 4) is block 2.
    EXPECT_EQ(scenario.dropped(*make_policy(config), 2), Units({3, 4}));
    // From ones the order is 2, 4, 3.
    config.kvcrush_config.anchor_point_mode = KVCrushAnchorPointMode::ONES;
    EXPECT_EQ(scenario.dropped(*make_policy(config), 2), Units({2, 3}));
}

TEST(EvictionPolicies, EachOfTheListCanBeAskedForByItsName) {
    std::set<std::string> names;
    for (const EvictionPolicyKind& kind : eviction_policies()) {
        EXPECT_TRUE(names.insert(kind.name).second) << kind.name << " is there twice";
        CacheEvictionConfig config;
        config.policy = kind.name;
        config.kvcrush_config = KVCrushConfig(1);
        EXPECT_NO_THROW(config.validate()) << kind.name;
        EXPECT_NE(make_policy(config), nullptr) << kind.name;
        EXPECT_EQ(config.resolved_granularity() == EvictionGranularity::TOKEN, kind.by_attention);
        EXPECT_NE(std::string(kind.help), "") << kind.name;
    }
    for (const char* known : {"sum", "norm_sum", "snapkv", "streaming", "tova", "kvcrush",
                              "adaptive_rkv", "hybrid", "key_norm", "key_diff"})
        EXPECT_EQ(names.count(known), 1u) << known;
}

TEST(EvictionPolicies, ConfigsSayWhatIsWrongWithBothValues) {
    const auto message = [](auto&& make) -> std::string {
        try {
            make();
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message([] { CacheEvictionConfig(64, 64, 128, AggregationMode::SUM); }),
              "max_cache_size is 128; allowed: more than start_size 64 plus recent_size 64");
    CacheEvictionConfig odd(32, 33, 128, AggregationMode::SUM);
    odd.granularity = EvictionGranularity::BLOCK;
    EXPECT_EQ(message([&] { odd.validate(32); }),
              "recent_size is 33; allowed: multiples of the block size, 32, unless granularity is "
              "TOKEN");
    CacheEvictionConfig config;
    config.policy = "best";
    EXPECT_NE(message([&] { config.validate(); }).find("policy is 'best'; allowed: sum, norm_sum"),
              std::string::npos);
    config.policy = "kvcrush";
    EXPECT_NE(message([&] { config.validate(); }).find("budget is 0"), std::string::npos);
    config.policy = "";
    config.score_pooling = 4;
    EXPECT_EQ(message([&] { config.validate(); }),
              "score_pooling is 4; allowed: odd numbers, or 0 for the granularity's own");
}

}  // namespace
}  // namespace pagewheel
