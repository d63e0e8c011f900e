#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "pagewheel/errors.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel {
namespace {

namespace names = properties;

GenerationConfig with(const ov::AnyMap& properties) {
    GenerationConfig config;
    set_properties(config, properties);
    return config;
}

TEST(GenerationProperties, EveryParameterIsOneByItsName) {
    const GenerationConfig defaults;
    ov::AnyMap all;
#define PAGEWHEEL_PARAMETER(type, member, initial, condition, allowed, help) \
    EXPECT_STREQ(names::member.name(), #member);                             \
    all[#member] = ov::Any(type(defaults.member));
#include "pagewheel/generation_parameters.def"
    EXPECT_EQ(all.size(), generation_parameters().size());
    all.erase("eos_token_id");  // -1 is none
    EXPECT_NO_THROW(with(all));
}

TEST(GenerationProperties, ANumberMayHaveAnyTypeThatHoldsIt) {
    EXPECT_EQ(with({names::max_new_tokens(5)}).max_new_tokens, 5u);
    EXPECT_EQ(with({{"max_new_tokens", size_t(5)}}).max_new_tokens, 5u);
    EXPECT_EQ(with({{"max_new_tokens", 5.0}}).max_new_tokens, 5u);
    EXPECT_EQ(with({{"max_new_tokens", GenerationConfig::unlimited}}).max_new_tokens,
              GenerationConfig::unlimited);
    EXPECT_EQ(with({names::temperature(1)}).temperature, 1.0f);
    EXPECT_EQ(with({names::top_p(0.3)}).top_p, 0.3f);
    EXPECT_EQ(with({names::rng_seed(7)}).rng_seed, 7u);
    const float never = std::numeric_limits<float>::infinity();
    EXPECT_EQ(with({names::timeout(never)}).timeout, never);
}

TEST(GenerationProperties, AListMayStandForASet) {
    const std::set<std::string> stops{"a", "b"};
    EXPECT_EQ(with({names::stop_strings({"a", "b"})}).stop_strings, stops);
    EXPECT_EQ(with({{"stop_strings", std::vector<std::string>{"b", "a", "a"}}}).stop_strings,
              stops);
    EXPECT_EQ(with({{"stop_token_ids", std::vector<int>{1, 2}}}).stop_token_ids,
              (std::set<int64_t>{1, 2}));
}

TEST(GenerationProperties, AnEosTokenIsAStopTokenBesidesOthers) {
    const auto config = with({names::eos_token_id(3), names::stop_token_ids(std::set<int64_t>{5})});
    EXPECT_EQ(config.eos_token_id, 3);
    EXPECT_EQ(config.stop_token_ids, (std::set<int64_t>{3, 5}));
}

TEST(GenerationProperties, OthersAreSetInTheGivenConfig) {
    GenerationConfig given;
    given.max_new_tokens = 9;
    const auto config = with({names::generation_config(given), names::echo(true)});
    EXPECT_EQ(config.max_new_tokens, 9u);
    EXPECT_TRUE(config.echo);
}

TEST(GenerationProperties, WhatIsWrongIsRefusedByNameAndChangesNothing) {
    for (const ov::AnyMap& wrong : {ov::AnyMap{{"max_new_tokens", -1}},
                                    {{"max_new_tokens", 1.5}},
                                    {{"max_new_tokens", "5"}},
                                    {{"temperature", true}},
                                    {{"stop_strings", 1}},
                                    {{"cache_salt", std::set<float>{}}},
                                    {{"no_such", 1}},
                                    {{"structured_output_config", "a"}},
                                    {{"generation_config", 1}}}) {
        GenerationConfig config;
        config.max_new_tokens = 3;
        ov::AnyMap with_echo = wrong;
        with_echo["echo"] = true;
        try {
            set_properties(config, with_echo);
            ADD_FAILURE() << wrong.begin()->first << " was accepted";
        } catch (const InvalidArgument& error) {
            EXPECT_NE(std::string(error.what()).find(wrong.begin()->first), std::string::npos)
                << error.what();
        }
        EXPECT_EQ(config.max_new_tokens, 3u);
        EXPECT_FALSE(config.echo);
    }
}

}  // namespace
}  // namespace pagewheel
