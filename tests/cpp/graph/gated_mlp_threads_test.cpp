// Which models OpenVINO could not compile in bf16 with one thread on AMX, and what is done then.
#include "graph/inference_threads.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "graph/compile_model.hpp"
#include "model/openvino_core.hpp"
#include "openvino/opsets/opset13.hpp"

namespace pagewheel {
namespace {

namespace ops = ov::opset13;
using Output = ov::Output<ov::Node>;

Output constant(ov::element::Type type, const ov::Shape& shape) {
    return ops::Constant::create(type, shape, {1});
}

/// x W^T, with W [rows, columns] in `type`: integers with a scale a row.
Output linear(const Output& x, size_t rows, size_t columns, ov::element::Type type) {
    Output w = constant(type, {rows, columns});
    if (type != ov::element::f32) w = std::make_shared<ops::Convert>(w, ov::element::f32);
    if (type.is_integral())
        w = std::make_shared<ops::Multiply>(w, constant(ov::element::f32, {rows, 1}));
    return std::make_shared<ops::MatMul>(x, w, false, true);
}

/// Of 64 inputs: a gate, `activation` of it, times up; then down.
template <class Activation>
std::shared_ptr<ov::Model> mlp(ov::element::Type type, const Activation& activation) {
    const auto x = std::make_shared<ops::Parameter>(ov::element::f32, ov::PartialShape{-1, -1, 64});
    const Output gated = std::make_shared<ops::Multiply>(activation(linear(x, 96, 64, type)),
                                                         linear(x, 96, 64, type));
    return std::make_shared<ov::Model>(ov::OutputVector{linear(gated, 64, 96, type)},
                                       ov::ParameterVector{x});
}

const auto swish = [](const Output& x) -> Output { return std::make_shared<ops::Swish>(x); };
const auto gelu = [](const Output& x) -> Output { return std::make_shared<ops::Gelu>(x); };
const auto silu_in_parts = [](const Output& x) -> Output {
    return std::make_shared<ops::Multiply>(x, std::make_shared<ops::Sigmoid>(x));
};
const auto gelu_in_parts = [](const Output& x) -> Output {
    const Output half = std::make_shared<ops::Multiply>(x, constant(ov::element::f32, {1, 1, 1}));
    const Output erf = std::make_shared<ops::Erf>(
        std::make_shared<ops::Divide>(x, constant(ov::element::f32, {1, 1, 1})));
    const Output one = std::make_shared<ops::Add>(erf, constant(ov::element::f32, {1, 1, 1}));
    return std::make_shared<ops::Multiply>(half, one);
};
const auto none = [](const Output& x) { return x; };

TEST(GatedMlp, IsFoundWithEveryActivationAndPlainWeights) {
    for (const auto& type :
         {ov::element::f32, ov::element::f16, ov::element::bf16, ov::element::i8})
        EXPECT_TRUE(has_gated_mlp(*mlp(type, swish))) << type;
    EXPECT_TRUE(has_gated_mlp(*mlp(ov::element::f16, gelu)));
    EXPECT_TRUE(has_gated_mlp(*mlp(ov::element::f16, silu_in_parts)));
    EXPECT_TRUE(has_gated_mlp(*mlp(ov::element::f16, gelu_in_parts)));
}

TEST(GatedMlp, IsNoneWithoutAnActivationOrWithWeightsThatOpenVinoDoesNotFuse) {
    EXPECT_FALSE(has_gated_mlp(*mlp(ov::element::f16, none)));
    for (const auto& type : {ov::element::u4, ov::element::i4, ov::element::u8})
        EXPECT_FALSE(has_gated_mlp(*mlp(type, swish))) << type;
}

CompileOptions options_of(const ov::AnyMap& properties, CpuFeatures processor) {
    CompileOptions options = parse_compile_options("CPU", properties, nullptr, {"CPU"});
    options.processor = processor;
    return options;
}

constexpr CpuFeatures amx{CpuFeature::amx_tile, CpuFeature::amx_bf16};
const ov::AnyMap one_thread{{"INFERENCE_NUM_THREADS", 1}};

bool divides(const ov::AnyMap& properties, CpuFeatures processor = amx,
             const std::shared_ptr<ov::Model>& model = mlp(ov::element::f16, swish)) {
    const CompileOptions options = options_of(properties, processor);
    return divides_by_no_threads(openvino_core(), *model, options, options.openvino);
}

TEST(GatedMlp, IsDividedAmongHalfTheThreadsOfAStream) {
    EXPECT_TRUE(divides(one_thread));
    ov::AnyMap two_streams{{"INFERENCE_NUM_THREADS", 2}, {"NUM_STREAMS", 2}};
    EXPECT_TRUE(divides(two_streams));
    if (InferenceArena(openvino_core(), {}).num_threads() < 2) {
        EXPECT_TRUE(divides({}));
        return;
    }
    EXPECT_FALSE(divides({{"NUM_STREAMS", 1}}));
    EXPECT_EQ(InferenceArena(openvino_core(), two_streams).threads_of_stream(), 1u);
}

TEST(GatedMlp, IsNotOpenVinosInF32OrWithoutAmxOrWithoutOne) {
    const auto with = [](const char* key, const char* value) {
        ov::AnyMap properties = one_thread;
        properties[key] = value;
        return properties;
    };
    EXPECT_TRUE(divides(with("INFERENCE_PRECISION_HINT", "bf16")));
    EXPECT_FALSE(divides(with("INFERENCE_PRECISION_HINT", "f32")));
    EXPECT_FALSE(divides(with("EXECUTION_MODE_HINT", "ACCURACY")));
    EXPECT_FALSE(divides(one_thread, {CpuFeature::avx512_bf16}));
    EXPECT_FALSE(divides(one_thread, amx, mlp(ov::element::u4, swish)));
}

TEST(GatedMlp, IsComputedInF32WithAWarningWhereOneThreadWouldDivideIt) {
    const char* folder = std::getenv("PAGEWHEEL_TEST_TINY_MODEL");
    if (!folder) GTEST_SKIP() << "PAGEWHEEL_TEST_TINY_MODEL is not set";
    const auto prepared = [&](CpuFeatures processor, const char* cache = "u8") {
        return prepare_graph(openvino_core(), ModelFolder(folder),
                             options_of({{"INFERENCE_NUM_THREADS", 1},
                                         {"INFERENCE_PRECISION_HINT", "bf16"},
                                         {"KV_CACHE_PRECISION", cache},
                                         {"attention_backend", "openvino"},
                                         {"linear_backend", "openvino"}},
                                        processor));
    };
    const auto cache_of = [](const PreparedGraph& graph) {
        return graph.properties.at("KV_CACHE_PRECISION").as<std::string>();
    };
    const PreparedGraph on_amx = prepared(amx);
    ASSERT_EQ(on_amx.warnings.size(), 1u);
    EXPECT_EQ(on_amx.warnings[0].find("the model is computed in f32: "), 0u);
    EXPECT_EQ(on_amx.properties.at("INFERENCE_PRECISION_HINT").as<std::string>(), "f32");
    EXPECT_EQ(cache_of(on_amx), "u8");
    EXPECT_EQ(cache_of(prepared(amx, "bf16")), "f32");
    EXPECT_EQ(cache_of(prepared({}, "bf16")), "bf16");
    const PreparedGraph elsewhere = prepared({});
    EXPECT_TRUE(elsewhere.warnings.empty());
    EXPECT_EQ(elsewhere.properties.at("INFERENCE_PRECISION_HINT").as<std::string>(), "bf16");
}

}  // namespace
}  // namespace pagewheel
