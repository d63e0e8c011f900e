// Properties to options: what is understood, what is refused and how.
#include "graph/compile_options.hpp"
#include "pagewheel/errors.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace pagewheel {
namespace {

using kernels::CacheFormat;

CompileOptions parse(const ov::AnyMap& properties, const CacheEvictionConfig* eviction = nullptr,
                     const std::string& device = "CPU") {
    return parse_compile_options(device, properties, eviction, {"CPU", "GPU.0", "GPU.1"});
}

std::string refusal(const ov::AnyMap& properties, const CacheEvictionConfig* eviction = nullptr,
                    const std::string& device = "CPU") {
    try {
        parse(properties, eviction, device);
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return {};
}

TEST(CompileOptions, ARefusalNamesTheProperty) {
    const auto parameter_of = [](const ov::AnyMap& properties, const std::string& device) {
        try {
            parse(properties, nullptr, device);
        } catch (const InvalidArgument& error) {
            EXPECT_EQ(error.code(), ErrorCode::invalid_parameter);
            return error.parameter();
        }
        return std::string("not refused");
    };
    EXPECT_EQ(parameter_of({}, "NPU"), "device");
    EXPECT_EQ(parameter_of({}, "HETERO:CPU"), "device");
    for (const char* key : {"attention_backend", "linear_backend", "activation_precision",
                            "fast_prefill", "ATTENTION_BACKEND"})
        EXPECT_EQ(parameter_of({{key, "maybe"}}, "CPU"), key);
    EXPECT_EQ(parameter_of({{"INFERENCE_PRECISION_HINT", "f16"}}, "CPU"),
              "INFERENCE_PRECISION_HINT");
}

TEST(CompileOptions, WithoutPropertiesBackendsAreChosenAndTheCacheIsOfBytes) {
    const CompileOptions options = parse({});
    EXPECT_TRUE(options.on_cpu);
    EXPECT_EQ(options.attention, Backend::AUTO);
    EXPECT_EQ(options.linear, Backend::AUTO);
    EXPECT_EQ(options.cache_format, CacheFormat::u8);
    EXPECT_FALSE(options.asks_openvino_cache);
    EXPECT_FALSE(options.inference_precision.has_value());
    EXPECT_FALSE(options.exact_activations);
    EXPECT_FALSE(options.profiling);
    EXPECT_FALSE(options.asks_model_cache);
    EXPECT_FALSE(options.evicts);
    EXPECT_FALSE(options.rotates);
    EXPECT_TRUE(options.openvino.empty());
    EXPECT_EQ(options.cache_properties, "");
}

TEST(CompileOptions, FastPrefillIsOnOnCpuAloneUnlessAskedOtherwise) {
    EXPECT_TRUE(parse({}).fast_prefill);
    EXPECT_FALSE(parse({}, nullptr, "GPU").fast_prefill);
    EXPECT_FALSE(parse({{"fast_prefill", false}}).fast_prefill);
    EXPECT_TRUE(parse({{"fast_prefill", "true"}}, nullptr, "GPU").fast_prefill);
    EXPECT_TRUE(parse({{"fast_prefill", true}}).openvino.empty());
    // Keys and values are those of all tokens either way: saved prefixes stay of use.
    EXPECT_EQ(parse({{"fast_prefill", false}}).cache_properties, "");
    EXPECT_EQ(refusal({{"fast_prefill", "maybe"}}),
              "fast_prefill is 'maybe'; allowed: true, false");
}

TEST(CompileOptions, BackendsAreTakenAndTheRestGoesToOpenVino) {
    const CompileOptions options = parse({{"attention_backend", "native"},
                                          {"linear_backend", "openvino"},
                                          {"NUM_STREAMS", 1},
                                          {"CACHE_DIR", "/somewhere"},
                                          {"PERF_COUNT", "YES"}});
    EXPECT_EQ(options.attention, Backend::NATIVE);
    EXPECT_EQ(options.linear, Backend::OPENVINO);
    EXPECT_TRUE(options.asks_model_cache);
    EXPECT_TRUE(options.profiling);
    EXPECT_EQ(options.openvino.size(), 3u);
    EXPECT_EQ(
        options.openvino.count("attention_backend") + options.openvino.count("linear_backend"), 0u);
    EXPECT_EQ(options.cache_properties, "\nattention_backend native\nlinear_backend openvino");
}

TEST(CompileOptions, AnUnknownBackendIsRefusedByName) {
    for (const char* key : {"attention_backend", "linear_backend"})
        EXPECT_EQ(refusal({{key, "fast"}}),
                  std::string(key) + " is 'fast'; allowed: auto, native, openvino");
}

TEST(CompileOptions, TheActivationPrecisionIsTakenByName) {
    using kernels::ActivationPrecision;
    EXPECT_EQ(parse({}).activations, ActivationPrecision::automatic);
    EXPECT_EQ(parse({{"activation_precision", "auto"}}).activations,
              ActivationPrecision::automatic);
    EXPECT_EQ(parse({{"activation_precision", "int8"}}).activations, ActivationPrecision::int8);
    const CompileOptions options = parse({{"activation_precision", "int16"}});
    EXPECT_EQ(options.activations, ActivationPrecision::int16);
    EXPECT_TRUE(options.openvino.empty());
    EXPECT_EQ(options.cache_properties, "\nactivation_precision int16");
    EXPECT_EQ(refusal({{"activation_precision", "f16"}}),
              "activation_precision is 'f16'; allowed: auto, int8, int16, bf16");
}

TEST(CompileOptions, ADeviceThatIsNotThereIsRefusedWithThoseThatAre) {
    EXPECT_EQ(refusal({}, nullptr, "NPU"),
              "device 'NPU' is not available; available: CPU, GPU.0, GPU.1");
    EXPECT_FALSE(parse({}, nullptr, "GPU").on_cpu);  // the first
    EXPECT_FALSE(parse({}, nullptr, "GPU.1").on_cpu);
}

TEST(CompileOptions, PropertiesInsideOfAPropertyAreRefused) {
    for (const char* key : {"DEVICE_PROPERTIES", "DEVICE_PROPERTIES_CPU"})
        EXPECT_NE(refusal({{key, "{CPU:{INFERENCE_PRECISION_HINT:f16}}"}})
                      .find("'" + std::string(key) + "' is not supported: a model runs on one"),
                  std::string::npos);
}

TEST(CompileOptions, F16InferenceIsRefusedOnCpuAlone) {
    for (const char* f16 : {"f16", "FP16"})
        EXPECT_EQ(refusal({{"INFERENCE_PRECISION_HINT", f16}}),
                  "INFERENCE_PRECISION_HINT is " + std::string(f16) +
                      " and the device is CPU; allowed: f32, bf16");
    EXPECT_EQ(refusal({{"INFERENCE_PRECISION_HINT", ov::element::f16}}),
              "INFERENCE_PRECISION_HINT is f16 and the device is CPU; allowed: f32, bf16");
    EXPECT_EQ(parse({{"INFERENCE_PRECISION_HINT", "f16"}}, nullptr, "GPU").inference_precision,
              ov::element::f16);
    // What is no type at all is OpenVINO's to refuse.
    EXPECT_FALSE(parse({{"INFERENCE_PRECISION_HINT", "exact"}}).inference_precision.has_value());
}

TEST(CompileOptions, ActivationsStayExactForF32AndWithoutDynamicQuantisation) {
    EXPECT_TRUE(parse({{"INFERENCE_PRECISION_HINT", "f32"}}).exact_activations);
    EXPECT_TRUE(parse({{"INFERENCE_PRECISION_HINT", ov::element::f32}}).exact_activations);
    EXPECT_TRUE(parse({{"EXECUTION_MODE_HINT", "ACCURACY"}}).exact_activations);
    EXPECT_TRUE(parse({{"DYNAMIC_QUANTIZATION_GROUP_SIZE", 0}}).exact_activations);
    EXPECT_FALSE(parse({{"INFERENCE_PRECISION_HINT", "bf16"}}).exact_activations);
    EXPECT_FALSE(parse({{"EXECUTION_MODE_HINT", "PERFORMANCE"}}).exact_activations);
    EXPECT_FALSE(parse({{"DYNAMIC_QUANTIZATION_GROUP_SIZE", 32}}).exact_activations);
}

TEST(CompileOptions, TheCacheIsAsAskedOrAsTheModeHasIt) {
    EXPECT_EQ(parse({{"KV_CACHE_PRECISION", "u4"}}).cache_format, CacheFormat::u4);
    EXPECT_EQ(parse({{"KV_CACHE_PRECISION", ov::element::bf16}}).cache_format, CacheFormat::bf16);
    EXPECT_EQ(parse({{"EXECUTION_MODE_HINT", "ACCURACY"}}).cache_format, CacheFormat::f32);
    EXPECT_EQ(
        parse({{"EXECUTION_MODE_HINT", "ACCURACY"}, {"KV_CACHE_PRECISION", "u8"}}).cache_format,
        CacheFormat::u8);
    const CompileOptions of_openvino = parse({{"KV_CACHE_PRECISION", "i8"}});
    EXPECT_FALSE(of_openvino.cache_format.has_value());
    EXPECT_EQ(of_openvino.cache_refusal, "cache format i8: allowed are f32, bf16, f16, u8 and u4");
    EXPECT_EQ(of_openvino.openvino.count("KV_CACHE_PRECISION"), 1u);
    for (const char* key : {"KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "KEY_CACHE_GROUP_SIZE",
                            "VALUE_CACHE_GROUP_SIZE"})
        EXPECT_TRUE(parse({{key, "u8"}}).asks_openvino_cache) << key;
}

TEST(CompileOptions, EvictionFromOpenVinosCacheNeedsPlainNumbersOnCpu) {
    CacheEvictionConfig eviction;
    const ov::AnyMap backend{{"attention_backend", "openvino"}};
    const auto with = [&](const char* key, const char* value) {
        ov::AnyMap properties = backend;
        properties[key] = value;
        return properties;
    };
    EXPECT_EQ(refusal(backend, &eviction),
              "KV_CACHE_PRECISION is u8, attention_backend is 'openvino' and use_cache_eviction is "
              "true; allowed: f32, bf16 or f16, or attention_backend native");
    EXPECT_EQ(refusal(with("KV_CACHE_PRECISION", "i8"), &eviction),
              "cache format i8: allowed are f32, bf16, f16, u8 and u4");
    EXPECT_NE(refusal(with("KEY_CACHE_PRECISION", "f32"), &eviction)
                  .find("KEY_CACHE_PRECISION is set, attention_backend is 'openvino'"),
              std::string::npos);
    EXPECT_EQ(refusal(backend, &eviction, "GPU"), "cache eviction runs on CPU, not GPU");
    eviction.apply_rotation = true;
    const CompileOptions options = parse(with("KV_CACHE_PRECISION", "f32"), &eviction);
    EXPECT_TRUE(options.evicts_from_openvino());
    EXPECT_TRUE(options.rotates);
    EXPECT_FALSE(parse({}, &eviction).evicts_from_openvino());
    EXPECT_EQ(refusal(backend), "");  // nothing is evicted
}

TEST(CompileOptions, WhatIsNoBoolIsLeftToOpenVino) {
    const CompileOptions options = parse({{"PERF_COUNT", "perhaps"}});
    EXPECT_FALSE(options.profiling);
    EXPECT_EQ(options.openvino.count("PERF_COUNT"), 1u);
}

}  // namespace
}  // namespace pagewheel
