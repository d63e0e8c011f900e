// What a model is compiled with. PAGEWHEEL_TEST_TINY_MODEL names a folder (scripts/run_tests).
#include "graph/compile_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "graph/inference_threads.hpp"
#include "kernels/isa.hpp"
#include "model/openvino_core.hpp"
#include "ops/paged_attention.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

class PrepareGraph : public testing::Test {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
        if (detected_isa() == Isa::scalar) GTEST_SKIP() << "backends stay with OpenVINO";
    }
    static PreparedGraph prepare(const ov::AnyMap& properties,
                                 const CacheEvictionConfig* eviction = nullptr) {
        return prepare_graph(openvino_core(), ModelFolder(std::getenv("PAGEWHEEL_TEST_TINY_MODEL")),
                             parse_compile_options("CPU", properties, eviction, {"CPU"}));
    }
    /// "none" where it is not set.
    static std::string property(const PreparedGraph& graph, const char* key) {
        const auto found = graph.properties.find(key);
        return found == graph.properties.end() ? "none" : found->second.as<std::string>();
    }
};

TEST_F(PrepareGraph, OpenVinosOwnOperationsGetThePropertiesAsTheyAre) {
    const PreparedGraph graph = prepare({{"attention_backend", "openvino"},
                                         {"linear_backend", "openvino"},
                                         {"KV_CACHE_PRECISION", "u8"},
                                         {"CACHE_DIR", "/nowhere"}});
    EXPECT_TRUE(graph.layers.empty());
    EXPECT_TRUE(graph.regions.plans.empty());
    EXPECT_TRUE(graph.warnings.empty());
    EXPECT_EQ(graph.properties.size(), 2u);
    EXPECT_EQ(property(graph, "KV_CACHE_PRECISION"), "u8");
    EXPECT_EQ(property(graph, "CACHE_DIR"), "/nowhere");
}

// Its kernels take no other pair, and say so only when they first run.
TEST_F(PrepareGraph, OpenVinosAttentionComputesInTheCachesType) {
    const auto prepare_with = [](const char* cache, const ov::AnyMap& others) {
        ov::AnyMap properties{{"attention_backend", "openvino"}, {"KV_CACHE_PRECISION", cache}};
        properties.insert(others.begin(), others.end());
        return prepare(properties);
    };
    const auto able = openvino_core().get_property("CPU", ov::device::capabilities);
    const bool has_bf16 = std::find(able.begin(), able.end(), "BF16") != able.end();
    EXPECT_EQ(property(prepare_with("f32", {}), "INFERENCE_PRECISION_HINT"), "f32");
    const ov::AnyMap openvinos_linear{{"linear_backend", "openvino"}};
    EXPECT_EQ(property(prepare_with("f32", openvinos_linear), "INFERENCE_PRECISION_HINT"), "f32");
    EXPECT_EQ(property(prepare_with("f16", openvinos_linear), "INFERENCE_PRECISION_HINT"), "none");
    const auto refusal = [&](const char* cache, const char* key, const char* value) {
        try {
            prepare_with(cache, {{key, value}});
        } catch (const InvalidArgument& error) {
            return std::string(error.what());
        }
        return std::string("not refused");
    };
    const char* const precision = "INFERENCE_PRECISION_HINT";
    EXPECT_EQ(
        refusal("f32", precision, "bf16"),
        "KV_CACHE_PRECISION is f32, and OpenVINO's attention computes in bf16; allowed: bf16, "
        "f16, u8, u4, INFERENCE_PRECISION_HINT f32, or attention_backend native");
    if (!has_bf16) {
        EXPECT_NE(refusal("bf16", precision, "bf16").find("does not compute in bf16"),
                  std::string::npos);
        return;
    }
    EXPECT_EQ(property(prepare_with("bf16", {}), precision), "bf16");
    EXPECT_EQ(property(prepare_with("bf16", openvinos_linear), precision), "bf16");
    EXPECT_NE(refusal("bf16", precision, "f32").find("computes in f32"), std::string::npos);
    EXPECT_NE(refusal("bf16", "EXECUTION_MODE_HINT", "ACCURACY").find("computes in f32"),
              std::string::npos);
}

TEST_F(PrepareGraph, NativeOperationsTakeThePropertiesThatOpenVinoCannotServe) {
    const PreparedGraph graph = prepare({{"KV_CACHE_PRECISION", "u8"}, {"CACHE_DIR", "/nowhere"}});
    EXPECT_FALSE(graph.layers.empty());
    EXPECT_EQ(property(graph, "KV_CACHE_PRECISION"), "none");
    EXPECT_EQ(property(graph, "CACHE_DIR"), "none");
    ASSERT_EQ(graph.warnings.size(), 1u);
    EXPECT_EQ(graph.warnings[0].find("CACHE_DIR is left out"), 0u);
}

// What a machine with several memory nodes does.
TEST_F(PrepareGraph, WeightsArePackedOnOpenVinosThreadsAsWell) {
    InferenceArena arena(openvino_core(), {});
    std::optional<PreparedGraph> graph;
    arena.run([&] { graph.emplace(prepare({})); });
    EXPECT_TRUE(graph->left.empty());
    EXPECT_EQ(graph->regions.plans.size(), prepare({}).regions.plans.size());
}

TEST_F(PrepareGraph, WhereNoMatMulIsLeftTheRestIsComputedInF32UnlessAskedOtherwise) {
    const PreparedGraph chosen = prepare({});
    ASSERT_TRUE(chosen.left.empty());
    EXPECT_EQ(property(chosen, "INFERENCE_PRECISION_HINT"), "f32");
    EXPECT_EQ(property(chosen, "DYNAMIC_QUANTIZATION_GROUP_SIZE"), "0");
    const PreparedGraph asked = prepare({{"INFERENCE_PRECISION_HINT", "bf16"}});
    EXPECT_EQ(property(asked, "INFERENCE_PRECISION_HINT"), "bf16");
    EXPECT_EQ(property(asked, "DYNAMIC_QUANTIZATION_GROUP_SIZE"), "none");
    EXPECT_EQ(property(prepare({{"linear_backend", "openvino"}}), "INFERENCE_PRECISION_HINT"),
              "none");
}

TEST_F(PrepareGraph, F32InferenceSwitchesDynamicQuantisationOffUnlessItIsGiven) {
    const ov::AnyMap f32{{"INFERENCE_PRECISION_HINT", "f32"}};
    EXPECT_EQ(property(prepare(f32), "DYNAMIC_QUANTIZATION_GROUP_SIZE"), "0");
    const PreparedGraph given =
        prepare({{"INFERENCE_PRECISION_HINT", "f32"}, {"DYNAMIC_QUANTIZATION_GROUP_SIZE", "32"}});
    EXPECT_EQ(property(given, "DYNAMIC_QUANTIZATION_GROUP_SIZE"), "32");
}

/// The model's attention, in regions and outside of them: how many, and how many for logits
/// indices.
std::pair<size_t, size_t> count_attention(const PreparedGraph& graph) {
    std::pair<size_t, size_t> counts;
    const auto count = [&](const ov::Node& node) {
        const auto* attention = ov::as_type<const PagedAttention>(&node);
        counts.first += attention != nullptr;
        counts.second += attention && attention->attributes().logits_indices;
    };
    for (const auto& node : graph.model->get_ops()) count(*node);
    for (const auto& plan : graph.regions.plans)
        for (const RegionStep& step : plan->description().steps) count(*step.op);
    return counts;
}

bool has_input(const PreparedGraph& graph, const char* name) {
    for (const auto& input : graph.model->inputs())
        if (input.get_names().count(name) != 0) return true;
    return false;
}

TEST_F(PrepareGraph, TheLastLayerHasQueriesForTheRowsWhoseLogitsAreAsked) {
    const PreparedGraph graph = prepare({});
    const auto [all, asked] = count_attention(graph);
    EXPECT_GT(all, 1u);
    EXPECT_EQ(asked, 1u);
    EXPECT_EQ(graph.fast_prefill.num_layers, 1u);
    EXPECT_EQ(graph.fast_prefill.num_native_attentions, 1u);
    EXPECT_GT(graph.fast_prefill.work_skipped, 0.5 / double(all));
    EXPECT_LT(graph.fast_prefill.work_skipped, 1.0 / double(all));
    EXPECT_TRUE(graph.fast_prefill.why.empty());
    EXPECT_EQ(graph.regions.plans.size(), 1u);  // the gathering does not part it
    EXPECT_TRUE(has_input(graph, "sampled_tokens_indices"));
    EXPECT_FALSE(has_input(graph, "logits_indices"));
}

TEST_F(PrepareGraph, WithoutFastPrefillNothingIsTrimmed) {
    const PreparedGraph graph = prepare({{"fast_prefill", false}});
    EXPECT_EQ(count_attention(graph).second, 0u);
    EXPECT_EQ(graph.fast_prefill.num_layers, 0u);
    EXPECT_EQ(graph.fast_prefill.work_skipped, 0);
}

TEST_F(PrepareGraph, OpenVinosAttentionKeepsItsQueriesAndWhatFollowsIsTrimmed) {
    const PreparedGraph graph = prepare({{"attention_backend", "openvino"}});
    EXPECT_EQ(graph.fast_prefill.num_layers, 1u);
    EXPECT_EQ(graph.fast_prefill.num_attentions, 0u);
    EXPECT_GT(graph.fast_prefill.work_skipped, 0);
    ASSERT_EQ(graph.fast_prefill.why.size(), 1u);
    EXPECT_NE(graph.fast_prefill.why[0].find("has queries for all tokens"), std::string::npos);
}

TEST_F(PrepareGraph, WhereAttentionIsObservedLogitsIndicesStandApartFromSampledOnes) {
    const CacheEvictionConfig eviction;
    const PreparedGraph graph = prepare({}, &eviction);
    EXPECT_EQ(count_attention(graph).second, 1u);
    EXPECT_TRUE(has_input(graph, "sampled_tokens_indices"));
    EXPECT_TRUE(has_input(graph, "logits_indices"));
}

TEST_F(PrepareGraph, AttentionOfOpenVinosThatIsObservedHasNoLogitsIndices) {
    const CacheEvictionConfig eviction;
    const PreparedGraph graph =
        prepare({{"attention_backend", "openvino"}, {"KV_CACHE_PRECISION", "f32"}}, &eviction);
    EXPECT_EQ(graph.fast_prefill.num_attentions, 0u);
    EXPECT_GT(graph.fast_prefill.work_skipped, 0);
    EXPECT_FALSE(has_input(graph, "logits_indices"));
    EXPECT_FALSE(has_input(graph, "logits_past_lens"));
}

}  // namespace
}  // namespace pagewheel
