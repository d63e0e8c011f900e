// Kernels on tile registers leave none behind: a thread goes from them to OpenVINO's kernels, to
// callbacks and to other models.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/isa/amx/linear.hpp"
#include "kernels/kernels.hpp"
#include "support/attention_world.hpp"
#include "support/emulated_tiles.hpp"
#include "support/linear_matrix.hpp"
#include "support/plain_vectors.hpp"
#include "support/prefill_on_emulated_tiles.hpp"
#if defined(__x86_64__)
#include "kernels/isa/amx/tiles.hpp"
#endif

namespace pagewheel::kernels {
namespace {

/// Each set of emulated tiles was the only one of its thread, and was released.
void expect_all_released() {
    const TileUses& uses = EmulatedTiles::uses;
    EXPECT_GT(uses.configured, 0u);
    EXPECT_EQ(uses.configured, uses.released);
    EXPECT_EQ(uses.nested, 0u);
    EmulatedTiles::reset_uses();
}

/// A call of a linear layer, of an MLP and of attention, each over several tiles.
template <class Check>
void run_all(const LinearKernels& linear, const AttentionKernels& attention, const Check& check) {
    std::mt19937 random(1);
    const Format weights{WeightType::u4, 32, Zero::any};
    const Matrix wide = make_matrix(weights, 96, 64, 0.01f, random);
    const Matrix deep = make_matrix(weights, 64, 96, 0.01f, random);
    const PackedLinear up(wide.view), down(deep.view);
    for (const size_t rows : {9, 40, 130}) {
        const std::vector<float> x(rows * 64, 0.5f);
        std::vector<float> output(rows * 96);
        const LinearInput input{x.data(), rows, nullptr, 1e-5f, Activations::bf16};
        const LinearOutput one{&up, output.data()};
        quantized_linear_by(linear, input, &one, 1);
        check();
        gated_mlp_by(linear, input, {&up, &up, &down, output.data(), nullptr});
        check();
    }
    for (const CacheFormat format :
         {CacheFormat::u8, CacheFormat::bf16, CacheFormat::f16, CacheFormat::u4}) {
        AttentionConfig config = random_config(format, random);
        config.bf16_products = true;
        World w = make_world(config, {{40, 90}, {0, 33}}, random);
        paged_attention(w.config, w.view(), attention);
        check();
    }
}

TEST(TilesOfKernels, AreConfiguredOnceAndReleasedByEachEntry) {
    LinearKernels linear = Isa::scalar.kernels().linear;
    linear.bf16 = amx::bf16_kernels<PlainVectors, EmulatedTiles>(linear.bf16);
    AttentionKernels attention = detected_isa().kernels().attention;
    if (!attention.has_tiles()) GTEST_SKIP() << "no kernels to decode with";
    attention.prefill_bf16 = prefill_on_emulated_tiles;
    EmulatedTiles::reset_uses();
    for (const int threads : {1, 3}) {
        tbb::task_arena arena(threads);
        arena.execute([&] { run_all(linear, attention, expect_all_released); });
    }
}

#if defined(__x86_64__)
// What the counted tiles do by their destructor, those of the processor must do by theirs.
static_assert(!std::is_trivially_destructible_v<amx::InstructionTiles>);
static_assert(!std::is_copy_constructible_v<amx::InstructionTiles>);

TEST(TilesOfKernels, AreReleasedOnTheProcessor) {
    if (detected_isa().name() != std::string("amx")) GTEST_SKIP() << "no AMX";
    {
        amx::InstructionTiles tiles;
        tiles.configure();
        EXPECT_TRUE(tiles.are_configured());
    }
    const Kernels& all = detected_isa().kernels();
    run_all(all.linear, all.attention,
            [] { EXPECT_FALSE(amx::InstructionTiles::are_configured()); });
}
#endif

}  // namespace
}  // namespace pagewheel::kernels
