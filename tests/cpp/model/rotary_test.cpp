#include "model/rotary.hpp"
#include "pagewheel/errors.hpp"

#include <gtest/gtest.h>

namespace pagewheel {
namespace {

using nlohmann::json;

const json base = {{"model_type", "llama"},
                   {"hidden_size", 32},
                   {"num_attention_heads", 4},
                   {"rope_theta", 10000.0},
                   {"max_position_embeddings", 4096}};

RotaryDescription derive(const json& changes) {
    json config = base;
    config.update(changes);
    return derive_rotary(config);
}

void expect_frequencies(const json& changes, const std::vector<double>& expected) {
    const RotaryDescription description = derive(changes);
    ASSERT_EQ(description.unsupported, "");
    ASSERT_EQ(description.kinds.size(), 1u);
    ASSERT_EQ(description.kinds[0].inverse_frequencies.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(description.kinds[0].inverse_frequencies[i], expected[i], expected[i] * 1e-6);
}

TEST(Rotary, IsDerivedFromConfigJson) {
    expect_frequencies(json::object(), {1, 0.1, 0.01, 0.001});
    expect_frequencies(json::parse(R"({"head_dim": 4})"), {1, 0.01});
    expect_frequencies(json::parse(R"({"partial_rotary_factor": 0.5})"), {1, 0.01});
    expect_frequencies({{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}},
                       {0.25, 0.025, 0.0025, 0.00025});
    // As transformers 5.23's ROPE_INIT_FUNCTIONS give it.
    expect_frequencies({{"rope_scaling",
                         {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 1024}}}},
                       {1.0, 0.100000001, 0.00308676064, 0.000125});
    expect_frequencies(
        {{"rope_scaling",
          {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}}}},
        {1.0, 0.075, 0.005, 0.00025});
}

TEST(Rotary, RefusesWhatItCannotRotateAndSaysWhy) {
    EXPECT_NE(derive(json::parse(R"({"model_type": "novel"})")).unsupported.find("'novel'"),
              std::string::npos);
    EXPECT_NE(derive(json::parse(R"({"rope_scaling": {"rope_type": "longrope"}})"))
                  .unsupported.find("longrope"),
              std::string::npos);
    EXPECT_NE(derive(json::parse(R"({"rope_scaling": {"rope_type": "linear"}})")).unsupported, "");
    EXPECT_NE(read_rotary(json::object()).unsupported, "");
    EXPECT_NE(read_rotary(json::parse(R"({"dims": 4})")).unsupported, "");
    const json normed = json::parse(
        R"({"dims": 4, "inverse_frequencies": [1, 0.1], "unsupported": "keys are normed"})");
    EXPECT_EQ(read_rotary(normed).unsupported, "keys are normed");
}

TEST(Rotary, IsReadWithOneKindOrSeveral) {
    const RotaryDescription single = read_rotary(
        json::parse(R"({"dims": 4, "pairing": "interleaved", "inverse_frequencies": [1, 0.5]})"));
    EXPECT_EQ(single.unsupported, "");
    EXPECT_TRUE(single.kinds[0].interleaved);
    EXPECT_EQ(single.kind_of(17), 0u);
    const RotaryDescription several = read_rotary(json::parse(R"({"pairing": "half", "kinds": [
        {"dims": 4, "inverse_frequencies": [1, 0.5]}, {"dims": 2, "inverse_frequencies": [1]}],
        "layers": [0, 1, -1, 0]})"));
    EXPECT_EQ(several.unsupported, "");
    EXPECT_EQ(several.layer_kinds, std::vector<size_t>({0, 1, 2, 0}));
    EXPECT_EQ(several.kinds[several.kind_of(2)].dims, 0u);
    for (const char* wrong :
         {R"({"dims": 4, "inverse_frequencies": [1]})", R"({"dims": 3})", R"({"dims": "4"})",
          R"({"dims": 2, "pairing": "thirds"})",
          R"({"kinds": [{"dims": 2, "inverse_frequencies": [1]}], "layers": [0, 1]})"})
        EXPECT_THROW(read_rotary(json::parse(wrong)), InvalidArgument) << wrong;
}

}  // namespace
}  // namespace pagewheel
