#include "kernels/isa.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace pagewheel {
namespace {

using Feature = CpuFeature;

constexpr CpuFeatures avx2{Feature::avx2, Feature::fma, Feature::f16c};
constexpr CpuFeatures avx512 =
    avx2 | CpuFeatures{Feature::avx512f, Feature::avx512bw, Feature::avx512dq, Feature::avx512vl,
                       Feature::avx512_vnni};
constexpr CpuFeatures amx =
    avx512 | CpuFeatures{Feature::avx512_bf16, Feature::amx_tile, Feature::amx_bf16};

std::string refusal_of(const std::string& wanted, CpuFeatures features) {
    try {
        choose_isa(wanted, features);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "none";
}

TEST(Isa, ScalarIsThereOnEveryProcessor) {
    EXPECT_EQ(choose_isa("", {}), Isa::scalar);
    EXPECT_EQ(choose_isa("scalar", processor_features()), Isa::scalar);
}

TEST(Isa, IsTheBestOfWhichTheProcessorHasAllFeatures) {
#if defined(__x86_64__)
    EXPECT_STREQ(choose_isa("", avx2).name(), "avx2");
    EXPECT_STREQ(choose_isa("", avx512).name(), "avx512");
    EXPECT_STREQ(choose_isa("", amx).name(), "amx");
    for (const Feature missing : {Feature::amx_tile, Feature::amx_bf16, Feature::avx512_bf16})
        EXPECT_STREQ(choose_isa("", amx.without({missing})).name(), "avx512");
    // A processor with AVX-512 but without VNNI, and one whose hypervisor hides F16C.
    EXPECT_STREQ(choose_isa("", avx2 | CpuFeatures{Feature::avx512f, Feature::avx512bw}).name(),
                 "avx2");
    EXPECT_EQ(choose_isa("", {Feature::avx2, Feature::fma}), Isa::scalar);
#endif
}

TEST(Isa, IsTheOneThatIsAskedForIfTheProcessorHasIt) {
#if defined(__x86_64__)
    EXPECT_STREQ(choose_isa("avx2", avx512).name(), "avx2");
    EXPECT_EQ(refusal_of("avx512", avx2), "PAGEWHEEL_ISA=avx512: this processor's best is avx2");
    const std::string unknown = refusal_of("avx3", avx512);
    EXPECT_EQ(unknown.find("PAGEWHEEL_ISA=avx3: allowed are scalar, "), 0u) << unknown;
    EXPECT_NE(unknown.find(", avx512, amx_model and amx"), std::string::npos) << unknown;
    EXPECT_STREQ(choose_isa("avx512", amx).name(), "avx512");
    EXPECT_STREQ(choose_isa("amx", amx).name(), "amx");
    EXPECT_NE(refusal_of("amx", amx.without({Feature::amx_bf16})), "none");
    // Runs without tiles, and is never taken unasked.
    EXPECT_STREQ(choose_isa("amx_model", avx512 | CpuFeatures{Feature::avx512_bf16}).name(),
                 "amx_model");
    EXPECT_NE(refusal_of("amx_model", avx512), "none");
    EXPECT_STREQ(choose_isa("", avx512 | CpuFeatures{Feature::avx512_bf16}).name(), "avx512");
    EXPECT_EQ(refusal_of("amx", avx512), "PAGEWHEEL_ISA=amx: this processor's best is avx512");
#endif
    EXPECT_NE(refusal_of("AVX2", processor_features()), "none");
}

#if defined(__x86_64__)
int asked = 0;

TEST(Isa, AsksForTilesOnlyWhereTheyWouldBeUsed) {
    const auto permit = [] { return ++asked > 0; };
    asked = 0;
    EXPECT_STREQ(choose_permitted_isa("", avx512, permit).isa.name(), "avx512");
    EXPECT_STREQ(choose_permitted_isa("avx2", amx, permit).isa.name(), "avx2");
    EXPECT_EQ(asked, 0);
    for (const char* wanted : {"", "amx"}) {
        EXPECT_STREQ(choose_permitted_isa(wanted, amx, permit).isa.name(), "amx");
        EXPECT_EQ(choose_permitted_isa(wanted, amx, permit).warning, "");
    }
    EXPECT_EQ(asked, 4);
}

TEST(Isa, IsTheNextOneAndSaysSoWhereTilesAreRefused) {
    for (const char* wanted : {"", "amx"}) {
        const PermittedIsa chosen = choose_permitted_isa(wanted, amx, [] { return false; });
        EXPECT_STREQ(chosen.isa.name(), "avx512");
        EXPECT_EQ(chosen.warning,
                  "the operating system refuses this process AMX's tiles: avx512 is used instead "
                  "of amx");
    }
}
#endif

TEST(CpuFeatures, TilesAreThereWhereTheProcessorHasThemAndTheSystemSavesThem) {
    constexpr uint32_t tile = 1u << 24, bf16 = 1u << 22;
    constexpr uint64_t avx = 7, config = 1u << 17, data = 1u << 18;
    const CpuFeatures all = tile_features(tile | bf16, avx | config | data);
    EXPECT_TRUE(all.has_all({Feature::amx_tile, Feature::amx_bf16}));
    const CpuFeatures some = tile_features(tile, avx | config | data);
    EXPECT_TRUE(some.has(Feature::amx_tile));
    EXPECT_FALSE(some.has(Feature::amx_bf16));
    for (const uint64_t xcr0 : {uint64_t(0), avx, avx | config, avx | data})
        EXPECT_FALSE(tile_features(tile | bf16, xcr0).has(Feature::amx_tile)) << xcr0;
    const CpuFeatures none = tile_features(bf16, avx | config | data);
    EXPECT_FALSE(none.has(Feature::amx_bf16));
}

TEST(CpuFeatures, ProductsOfBf16AreFastOnProcessorsOfAmdAlone) {
    for (const char* vendor : {"AuthenticAMD", "GenuineIntel", "HygonGenuine", "CentaurHauls",
                               "  Shanghai  ", "VIA VIA VIA ", "AMDisbetter!", ""}) {
        const CpuFeatures features = bf16_features(vendor);
        EXPECT_TRUE(features.has(Feature::avx512_bf16)) << vendor;
        EXPECT_EQ(features.has(Feature::fast_avx512_bf16), vendor == std::string("AuthenticAMD"))
            << vendor;
    }
}

TEST(CpuFeatures, FastProductsOfBf16AreProductsOfBf16) {
    const CpuFeatures here = processor_features();
    EXPECT_TRUE(!here.has(Feature::fast_avx512_bf16) || here.has(Feature::avx512_bf16));
}

}  // namespace
}  // namespace pagewheel
