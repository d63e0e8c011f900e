// Which activations a call gets, by what is asked for and its number of rows.
#include "kernels/activation_choice.hpp"
#include "support/kernel_access.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pagewheel::kernels {
namespace {

TEST(ActivationChoice, WhatIsAskedForIsTakenForAnyNumberOfRows) {
    for (const Isa isa : available_isas())
        for (const size_t rows : {1, 8, 64, 5000}) {
            EXPECT_EQ(choose_activations(ActivationPrecision::int8, rows, WeightForm::u4, isa),
                      Activations::int8);
            EXPECT_EQ(choose_activations(ActivationPrecision::int16, rows, WeightForm::other, isa),
                      Activations::int16);
        }
}

// One person's chat is a row at a time: there twice the multiplications take no time.
TEST(ActivationChoice, ASingleRowHasTwoBytesOnEveryProcessor) {
    for (const Isa isa : available_isas())
        EXPECT_EQ(choose_activations(ActivationPrecision::automatic, 1, WeightForm::other, isa),
                  Activations::int16)
            << isa.name();
}

// Answers are f32's where the processor can: long calls too.
TEST(ActivationChoice, LongCallsHaveBf16WhereItIs) {
    for (const Isa isa : available_isas())
        for (const ActivationPrecision precision :
             {ActivationPrecision::automatic, ActivationPrecision::bf16})
            EXPECT_EQ(choose_activations(precision, 512, WeightForm::other, isa),
                      has_bf16_activations(isa) ? Activations::bf16 : Activations::int8);
}

// There int16 takes fewer products than bf16. Who asks for bf16 gets it.
TEST(ActivationChoice, LongCallsOfU4HaveInt16WhereItIsFaster) {
    for (const Isa isa : available_isas()) {
        const AutomaticActivations& here = automatic_activations(isa, processor_features());
        const Activations often = here.int16_of_u4 ? Activations::int16 : here.many_rows;
        EXPECT_EQ(choose_activations(ActivationPrecision::automatic, 512, WeightForm::u4, isa),
                  often);
        EXPECT_EQ(choose_activations(ActivationPrecision::bf16, 512, WeightForm::u4, isa),
                  here.many_rows);
        EXPECT_EQ(choose_expert_activations(ActivationPrecision::automatic, 512, 500,
                                            WeightForm::u4, isa),
                  often);
    }
}

TEST(ActivationChoice, WeightsInBf16HaveActivationsInBf16) {
    for (const Isa isa : available_isas()) {
        EXPECT_EQ(has_fast_bf16(isa),
                  automatic_activations(isa, processor_features()).many_rows == Activations::bf16);
        for (const ActivationPrecision precision :
             {ActivationPrecision::automatic, ActivationPrecision::int8, ActivationPrecision::int16,
              ActivationPrecision::bf16})
            for (const size_t rows : {1, 512}) {
                EXPECT_EQ(choose_activations(precision, rows, WeightForm::bf16, isa),
                          Activations::bf16);
                EXPECT_EQ(choose_expert_activations(precision, 512, rows, WeightForm::bf16, isa),
                          Activations::bf16);
            }
    }
}

#if defined(__x86_64__)
using Feature = CpuFeature;

constexpr CpuFeatures avx512{Feature::avx2,     Feature::fma,        Feature::f16c,
                             Feature::avx512f,  Feature::avx512bw,   Feature::avx512dq,
                             Feature::avx512vl, Feature::avx512_vnni};
constexpr CpuFeatures tiles{Feature::amx_tile, Feature::amx_bf16};

/// Of a processor with these features, which may use its tiles or may not.
const AutomaticActivations& chosen(CpuFeatures features, bool permitted = true) {
    const Isa isa = choose_permitted_isa(
                        "", features, permitted ? [] { return true; } : [] { return false; })
                        .isa;
    return automatic_activations(isa, features);
}

TEST(ActivationChoice, ProductsOfBf16AreTakenWhereTheyAreFastAndNotWhereTheyExist) {
    for (const char* vendor : {"GenuineIntel", "AuthenticAMD", "CentaurHauls"}) {
        const CpuFeatures bf16 = avx512 | bf16_features(vendor);
        const bool fast = vendor == std::string("AuthenticAMD");
        EXPECT_EQ(chosen(bf16).many_rows, fast ? Activations::bf16 : Activations::int8) << vendor;
        EXPECT_EQ(chosen(bf16).int16_rows, fast ? 24 : 8) << vendor;
        EXPECT_EQ(chosen(bf16).int16_of_u4, fast) << vendor;
        EXPECT_EQ(chosen(bf16 | tiles).many_rows, Activations::bf16) << vendor;
        EXPECT_EQ(chosen(bf16 | tiles).int16_rows, 8) << vendor;
        // The system refuses the tiles.
        EXPECT_EQ(&chosen(bf16 | tiles, false), &chosen(bf16)) << vendor;
    }
    EXPECT_EQ(chosen(avx512).many_rows, Activations::int8);
}

TEST(ActivationChoice, SaysWhyManyRowsGetWhatTheyGet) {
    EXPECT_EQ(chosen(avx512 | bf16_features("GenuineIntel")).why,
              "AVX512_BF16 is slow on this vendor's processors, and AMX is not used");
    for (const Isa isa : available_isas()) {
        const std::string why(automatic_activations(isa, processor_features()).why);
        const std::string text = describe_activations(ActivationPrecision::automatic, isa);
        EXPECT_EQ(text.substr(text.size() - why.size() - 2), ": " + why) << text;
        EXPECT_EQ(describe_activations(ActivationPrecision::int8, isa),
                  isa.name() + std::string(" kernels, activations in int8"));
    }
}

// What is measured on the model must be what AMX will answer.
TEST(ActivationChoice, TheModelOfAmxChangesFromInt16WhereAmxDoes) {
    const CpuFeatures all = avx512 | bf16_features("GenuineIntel") | tiles;
    EXPECT_EQ(automatic_activations(choose_isa("amx_model", all), all).int16_rows,
              automatic_activations(choose_isa("amx", all), all).int16_rows);
    if (!processor_features().has(Feature::avx512_bf16)) GTEST_SKIP() << "no AVX512_BF16";
    const Isa model = choose_isa("amx_model", processor_features());
    const auto activations = [&](size_t rows) {
        return choose_activations(ActivationPrecision::automatic, rows, WeightForm::u4, model);
    };
    EXPECT_EQ(activations(8), Activations::int16);
    EXPECT_EQ(activations(9), Activations::bf16);
}
#endif

TEST(ActivationChoice, Bf16IsRefusedWithTheReasonWhereItIsNotTaken) {
    const Isa isa = detected_isa();
    const AutomaticActivations& here = automatic_activations(isa, processor_features());
    if (here.many_rows == Activations::bf16) {
        EXPECT_EQ(parse_activation_precision("key", "bf16"), ActivationPrecision::bf16);
        return;
    }
    try {
        parse_activation_precision("key", "bf16");
        FAIL() << "not refused";
    } catch (const std::exception& error) {
        EXPECT_EQ(error.what(), "key is 'bf16', but the kernels are " + std::string(isa.name()) +
                                    "'s: " + std::string(here.why) +
                                    "; allowed: auto, int8, int16");
    }
}

}  // namespace
}  // namespace pagewheel::kernels
