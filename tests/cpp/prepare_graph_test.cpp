// What a model is compiled with. PAGEWHEEL_TEST_TINY_MODEL names a folder (scripts/run_tests).
#include "compile/prepare_graph.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/isa.hpp"
#include "model/openvino_core.hpp"

namespace pagewheel {
namespace {

class PrepareGraph : public testing::Test {
protected:
    void SetUp() override {
        if (!std::getenv("PAGEWHEEL_TEST_TINY_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
        if (detected_isa() == Isa::scalar) GTEST_SKIP() << "backends stay with OpenVINO";
    }
    static PreparedGraph prepare(const ov::AnyMap& properties) {
        return prepare_graph(openvino_core(), ModelFolder(std::getenv("PAGEWHEEL_TEST_TINY_MODEL")),
                             parse_compile_options("CPU", properties, nullptr, {"CPU"}));
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

TEST_F(PrepareGraph, NativeOperationsTakeThePropertiesThatOpenVinoCannotServe) {
    const PreparedGraph graph = prepare({{"KV_CACHE_PRECISION", "u8"}, {"CACHE_DIR", "/nowhere"}});
    EXPECT_FALSE(graph.layers.empty());
    EXPECT_EQ(property(graph, "KV_CACHE_PRECISION"), "none");
    EXPECT_EQ(property(graph, "CACHE_DIR"), "none");
    ASSERT_EQ(graph.warnings.size(), 1u);
    EXPECT_EQ(graph.warnings[0].find("CACHE_DIR is left out"), 0u);
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

}  // namespace
}  // namespace pagewheel
