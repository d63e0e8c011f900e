#include "kernels/linear_paths.hpp"

#include <gtest/gtest.h>

#include "kernels/quantized_linear.hpp"

namespace pagewheel::kernels {
namespace {

TEST(LinearPaths, Bf16PaysOnlyWhereItIsThereAndNeverForAStreamedRow) {
    EXPECT_EQ(rows_from_which_bf16_pays(Isa::scalar, 4), never);
    for (const Isa isa : available_isas())
        for (const int bits : {4, 8}) {
            const size_t rows = rows_from_which_bf16_pays(isa, bits);
            EXPECT_GT(rows, 8u) << isa.name();
            if (!has_bf16_activations(isa)) {
                EXPECT_EQ(rows, never) << isa.name();
            }
        }
}

}  // namespace
}  // namespace pagewheel::kernels
