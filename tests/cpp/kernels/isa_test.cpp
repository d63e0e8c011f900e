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

std::string refusal_of(const std::string& wanted, CpuFeatures features) {
    try {
        choose_isa(wanted, features);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "none";
}

TEST(Isa, ScalarIsThereOnEveryProcessor) {
    EXPECT_EQ(choose_isa("", {}), Isa::scalar);
    EXPECT_EQ(choose_isa("scalar", processor_features()), Isa::scalar);
    EXPECT_EQ(available_isas().back(), Isa::scalar);
}

TEST(Isa, IsTheBestOfWhichTheProcessorHasAllFeatures) {
#if defined(__x86_64__)
    EXPECT_STREQ(choose_isa("", avx2).name(), "avx2");
    EXPECT_STREQ(choose_isa("", avx512).name(), "avx512");
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
    EXPECT_NE(unknown.find(" and avx512"), std::string::npos) << unknown;
#endif
    EXPECT_NE(refusal_of("AVX2", processor_features()), "none");
}

}  // namespace
}  // namespace pagewheel
