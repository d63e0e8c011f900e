// Which activations a call gets, by what is asked for and its number of rows.
#include "kernels/activation_choice.hpp"

#include <gtest/gtest.h>

namespace pagewheel::kernels {
namespace {

TEST(ActivationChoice, WhatIsAskedForIsTakenForAnyNumberOfRows) {
    for (const Isa isa : available_isas())
        for (const size_t rows : {1, 8, 64, 5000}) {
            EXPECT_EQ(choose_activations(ActivationPrecision::int8, rows, isa), Activations::int8);
            EXPECT_EQ(choose_activations(ActivationPrecision::int16, rows, isa),
                      Activations::int16);
        }
}

// One person's chat is a row at a time: there twice the multiplications take no time.
TEST(ActivationChoice, ASingleRowHasTwoBytesOnEveryProcessor) {
    for (const Isa isa : available_isas())
        EXPECT_EQ(choose_activations(ActivationPrecision::automatic, 1, isa), Activations::int16)
            << isa.name();
}

// Answers are f32's where the processor can: long calls too.
TEST(ActivationChoice, LongCallsHaveBf16WhereItIs) {
    for (const Isa isa : available_isas())
        for (const ActivationPrecision precision :
             {ActivationPrecision::automatic, ActivationPrecision::bf16})
            EXPECT_EQ(choose_activations(precision, 512, isa),
                      has_bf16_activations(isa) ? Activations::bf16 : Activations::int8);
}

// What is measured on the model must be what AMX will answer.
TEST(ActivationChoice, TheModelOfAmxChangesFromInt16WhereAmxDoes) {
    if (!processor_features().has(CpuFeature::avx512_bf16)) GTEST_SKIP() << "no AVX512_BF16";
    const Isa model = choose_isa("amx_model", processor_features());
    const auto chosen = [&](size_t rows) {
        return choose_activations(ActivationPrecision::automatic, rows, model);
    };
    EXPECT_EQ(chosen(15), Activations::int16);
    EXPECT_EQ(chosen(16), Activations::bf16);
}

}  // namespace
}  // namespace pagewheel::kernels
