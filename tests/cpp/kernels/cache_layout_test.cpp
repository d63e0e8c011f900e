// How keys and values lie in blocks, and that every ISA writes them so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

namespace pagewheel::kernels {
namespace {

/// Most that a format changes x, one of numbers that lie in a range of that size.
double rounding_of(CacheFormat format, double x, double range) {
    switch (format) {
        case CacheFormat::f32:
            return 0;
        case CacheFormat::bf16:
            return std::abs(x) / 256;
        case CacheFormat::f16:
            return std::abs(x) / 2048 + 1e-7;
        case CacheFormat::u8:
            return range / 510 * 1.001;
        case CacheFormat::u4:
            return range / 30 * 1.001;
    }
    ADD_FAILURE() << "no such format";
    return 0;
}

class CacheWriting : public testing::TestWithParam<CacheFormat> {};

TEST_P(CacheWriting, EveryIsaWritesTheSameBytes) {
    std::mt19937 random(8);
    for (int i = 0; i < 12; ++i) {
        World w = random_world(GetParam(), random, 1);
        write_keys_values(w.config.layout, w.view(), Isa::scalar);
        const auto keys = w.key_blocks, values = w.value_blocks;
        for (Isa isa : available_isas()) {
            std::fill(w.output.begin(), w.output.end(), 0.0f);
            write_keys_values(w.config.layout, w.view(), isa);
            EXPECT_EQ(w.key_blocks, keys) << describe(w, isa);
            EXPECT_EQ(w.value_blocks, values) << describe(w, isa);
        }
    }
}

TEST_P(CacheWriting, ReadsBackWhatWasWrittenWithinTheFormatsStep) {
    std::mt19937 random(9);
    for (int i = 0; i < 12; ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        World w = make_world(config, {{0, 50}}, random);
        const CacheLayout& l = config.layout;
        write_keys_values(l, w.view(), Isa::scalar);
        std::vector<float> x(256);
        const auto compare = [&](const float* wanted, size_t size) {
            const auto [low, high] = std::minmax_element(wanted, wanted + size);
            for (size_t d = 0; d < size; ++d) {
                const double bound = rounding_of(l.format, wanted[d], *high - *low);
                ASSERT_LE(std::abs(x[d] - wanted[d]), bound) << describe(w, Isa::scalar);
            }
        };
        for (size_t t = 0; t < 50; ++t)
            for (size_t h = 0; h < l.kv_heads; ++h) {
                const auto block = static_cast<size_t>(w.block_indices[t / l.block_size]);
                const size_t row = t * l.kv_heads + h;
                read_key(l, &w.key_blocks[block * l.key_block_bytes()], t % l.block_size, h,
                         x.data());
                compare(&w.key[row * l.key_size], l.key_size);
                read_value(l, &w.value_blocks[block * l.value_block_bytes()], t % l.block_size, h,
                           x.data());
                compare(&w.value[row * l.value_size], l.value_size);
            }
    }
}

TEST_P(CacheWriting, AppendingATokenLeavesTheBytesOfTheOthers) {
    std::mt19937 random(14);
    AttentionConfig config = random_config(GetParam(), random);
    World w = make_world(config, {{0, 1}}, random);
    // Written from all-zero and all-one bytes, exactly the token's own bytes come out alike.
    World ones = w;
    std::fill(w.key_blocks.begin(), w.key_blocks.end(), uint8_t{0});
    std::fill(w.value_blocks.begin(), w.value_blocks.end(), uint8_t{0});
    write_keys_values(config.layout, w.view(), Isa::scalar);
    write_keys_values(config.layout, ones.view(), Isa::scalar);
    const auto alike = [](const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
        size_t n = 0;
        for (size_t i = 0; i < a.size(); ++i) n += a[i] == b[i];
        return n;
    };
    EXPECT_EQ(alike(w.key_blocks, ones.key_blocks) * config.layout.block_size,
              config.layout.key_block_bytes());
    EXPECT_EQ(alike(w.value_blocks, ones.value_blocks) * config.layout.block_size,
              config.layout.value_block_bytes());
}

INSTANTIATE_TEST_SUITE_P(Formats, CacheWriting, testing::ValuesIn(all_cache_formats),
                         [](const auto& info) { return cache_format_name(info.param); });

TEST(CacheLayout, SizesAreWordsPlusScales) {
    CacheLayout layout{CacheFormat::u8, 32, 3, 64, 64};
    EXPECT_EQ(layout.key_block_bytes(), 3u * 32 * (64 + 4));
    EXPECT_EQ(layout.value_block_bytes(), 3u * 32 * (64 + 4));
    layout = {CacheFormat::u4, 32, 1, 64, 48};
    EXPECT_EQ(layout.key_block_bytes(), 32u * (32 + 4 * 4));
    EXPECT_EQ(layout.value_block_bytes(), 32u * (24 + 4 * 4));
    layout = {CacheFormat::u4, 32, 1, 72, 64};
    EXPECT_EQ(layout.key_block_bytes(), 32u * (36 + 5 * 4));
    layout = {CacheFormat::bf16, 16, 2, 80, 96};
    EXPECT_EQ(layout.key_block_bytes(), 2u * 16 * 160);
    EXPECT_EQ(layout.value_block_bytes(), 2u * 16 * 192);
}

TEST(CacheLayout, NamesParseBack) {
    for (CacheFormat format : all_cache_formats)
        EXPECT_EQ(parse_cache_format(cache_format_name(format)), format);
    EXPECT_THROW(parse_cache_format("i8"), std::runtime_error);
}

TEST(CacheLayout, RefusesSizesItCannotHold) {
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 24, 1, 64, 64}.check()), std::runtime_error);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 0, 64, 64}.check()), std::runtime_error);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 1, 63, 64}.check()), std::runtime_error);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 1, 64, 0}.check()), std::runtime_error);
}

}  // namespace
}  // namespace pagewheel::kernels
