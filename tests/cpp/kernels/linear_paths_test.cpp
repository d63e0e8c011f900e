#include "kernels/linear_paths.hpp"

#include <gtest/gtest.h>

#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {
namespace {

TEST(LinearPaths, Bf16IsTakenOnlyWhereItIsThereAndNeverForAStreamedRow) {
    EXPECT_EQ(rows_for_bf16(Isa::scalar, 4, 0.1), never);
    for (const Isa isa : available_isas())
        for (const int bits : {4, 8}) {
            EXPECT_GT(rows_for_bf16(isa, bits, 0), 8u) << isa.name();
            if (!has_bf16_activations(isa)) {
                EXPECT_EQ(rows_for_bf16(isa, bits, 0), never) << isa.name();
            }
        }
}

TEST(LinearPaths, WhoAsksForMoreSpeedGetsItFromMoreRowsOn) {
    for (const Isa isa : available_isas())
        for (const int bits : {4, 8}) {
            size_t before = 0;
            for (const double speed : {0.0, 0.5, 0.8, 1.0, 2.0, 4.0, 100.0}) {
                EXPECT_GE(rows_for_bf16(isa, bits, speed), before) << isa.name() << ", " << speed;
                before = rows_for_bf16(isa, bits, speed);
            }
            EXPECT_EQ(before, never);
        }
}

}  // namespace
}  // namespace pagewheel::kernels
