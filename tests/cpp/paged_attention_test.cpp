// Paged attention of every ISA and cache format against a double reference.
#include "kernels/paged_attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace pagewheel::kernels {
namespace {

constexpr CacheFormat formats[] = {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16,
                                   CacheFormat::u8, CacheFormat::u4};

std::vector<Isa> isas() {
    std::vector<Isa> all;
    for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
        if (isa <= detected_isa()) all.push_back(isa);
    return all;
}

/// Largest error of an element that arithmetic adds to what the cache holds, for values of unit
/// variance.
double arithmetic_bound(const CacheLayout& layout, Isa isa) {
    if (layout.format != CacheFormat::u8 && layout.format != CacheFormat::u4) return 1e-5;
    // Codes of up to 255 are summed before the zero point is taken off.
    if (isa != Isa::avx512) return 2e-5;
    // Integers of large heads are coarser where keys are turned, lest sums overflow.
    return layout.key_size > 256 ? 3e-3 : 1e-3;
}

/// A batch that owns its arrays, over a pool that starts as NaN.
struct World {
    AttentionConfig config;
    std::vector<int32_t> past, begins{0}, block_indices, block_begins{0};
    std::vector<float> query, key, value, output;
    std::vector<uint8_t> key_blocks, value_blocks;
    std::vector<int32_t> rotated, deltas;
    size_t delta_width = 1;
    std::vector<float> lut;
    std::vector<float> sinks, slopes;
    std::vector<int32_t> windows;
    std::vector<float> scores;

    size_t batch_size() const { return past.size(); }
    size_t fresh(size_t s) const { return static_cast<size_t>(begins[s + 1] - begins[s]); }
    size_t context(size_t s) const { return static_cast<size_t>(past[s]) + fresh(s); }
    size_t all_contexts() const {
        size_t sum = 0;
        for (size_t s = 0; s < batch_size(); ++s) sum += context(s);
        return sum;
    }

    AttentionBatch view() {
        AttentionBatch b;
        b.query = query.data();
        b.key = key.data();
        b.value = value.data();
        b.output = output.data();
        b.key_blocks = key_blocks.data();
        b.value_blocks = value_blocks.data();
        b.num_sequences = batch_size();
        b.past_lens = past.data();
        b.subsequence_begins = begins.data();
        b.block_indices = block_indices.data();
        b.block_indices_begins = block_begins.data();
        b.num_rotated = rotated.size();
        b.rotated_block_indices = rotated.data();
        b.delta_width = delta_width;
        b.rotation_deltas = deltas.data();
        b.rotation_trig_lut = lut.data();
        b.sinks = sinks.empty() ? nullptr : sinks.data();
        b.alibi_slopes = slopes.empty() ? nullptr : slopes.data();
        b.score_windows = windows.empty() ? nullptr : windows.data();
        b.scores = windows.empty() ? nullptr : scores.data();
        return b;
    }
};

std::vector<float> normal(size_t n, std::mt19937& random, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

size_t pick(std::mt19937& random, size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random);
}

struct Length {
    size_t past, fresh;
};

/// Sequences with their blocks shuffled over a pool and the past tokens written to it.
World make_world(const AttentionConfig& config, const std::vector<Length>& lengths,
                 std::mt19937& random) {
    const CacheLayout& layout = config.layout;
    World w;
    w.config = config;
    for (const Length& length : lengths) {
        w.past.push_back(0);
        w.begins.push_back(w.begins.back() + static_cast<int32_t>(length.past));
        const size_t context = length.past + length.fresh;
        const size_t blocks = (context + layout.block_size - 1) / layout.block_size;
        w.block_begins.push_back(w.block_begins.back() + static_cast<int32_t>(blocks));
    }
    w.block_indices.resize(static_cast<size_t>(w.block_begins.back()));
    std::iota(w.block_indices.begin(), w.block_indices.end(), 1);
    std::shuffle(w.block_indices.begin(), w.block_indices.end(), random);
    w.key_blocks.assign((w.block_indices.size() + 1) * layout.key_block_bytes(), 0xff);
    w.value_blocks.assign((w.block_indices.size() + 1) * layout.value_block_bytes(), 0xff);

    const auto fill = [&] {
        const auto tokens = static_cast<size_t>(w.begins.back());
        w.key = normal(tokens * layout.kv_heads * layout.key_size, random);
        w.value = normal(tokens * layout.kv_heads * layout.value_size, random);
        w.query = normal(tokens * config.heads * layout.key_size, random, 1.5f);
        w.output.assign(tokens * config.heads * layout.value_size, NAN);
    };
    fill();
    write_keys_values(layout, w.view(), Isa::scalar);
    w.begins.assign(1, 0);
    for (size_t s = 0; s < lengths.size(); ++s) {
        w.past[s] = static_cast<int32_t>(lengths[s].past);
        w.begins.push_back(w.begins.back() + static_cast<int32_t>(lengths[s].fresh));
    }
    fill();
    w.scores.assign(w.all_contexts(), NAN);
    return w;
}

/// One LUT row per delta, theta 10000.
void make_lut(World& w, size_t rows) {
    const size_t r = w.config.rotary_dims;
    w.lut.resize(rows * r);
    for (size_t e = 0; e < rows; ++e)
        for (size_t i = 0; i < r / 2; ++i) {
            const double angle =
                static_cast<double>(e) *
                std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(r));
            w.lut[e * r + i] = static_cast<float>(std::cos(angle));
            w.lut[e * r + r / 2 + i] = static_cast<float>(std::sin(angle));
        }
}

/// The definition in double over what the cache holds. Keys are turned down here, where the kernels
/// turn queries up.
struct Expected {
    std::vector<double> output, scores;

    explicit Expected(World& w) {
        const CacheLayout& l = w.config.layout;
        output.resize(w.output.size());
        scores.assign(w.all_contexts(), 0);
        size_t score_begin = 0;
        for (size_t s = 0; s < w.batch_size(); ++s) {
            for (size_t h = 0; h < l.kv_heads; ++h) head(w, s, h, score_begin);
            score_begin += w.context(s);
        }
    }

    void head(World& w, size_t s, size_t kv_head, size_t score_begin) {
        const CacheLayout& l = w.config.layout;
        const size_t context = w.context(s), ratio = w.config.heads / l.kv_heads;
        std::vector<double> keys, values;
        for (size_t j = 0; j < context; ++j) load(w, s, kv_head, j, keys, values);
        for (size_t t = 0; t < w.fresh(s); ++t)
            for (size_t q = 0; q < ratio; ++q) {
                const size_t token = static_cast<size_t>(w.begins[s]) + t;
                const bool scored =
                    !w.windows.empty() && w.fresh(s) - t <= static_cast<size_t>(w.windows[s]);
                row(w, token, static_cast<size_t>(w.past[s]) + t, kv_head * ratio + q, keys, values,
                    scored ? &scores[score_begin] : nullptr);
            }
    }

    static void load(World& w, size_t s, size_t kv_head, size_t j, std::vector<double>& keys,
                     std::vector<double>& values) {
        const CacheLayout& l = w.config.layout;
        const size_t entry = static_cast<size_t>(w.block_begins[s]) + j / l.block_size;
        const size_t slot = j % l.block_size, r = w.config.rotary_dims;
        const auto block = static_cast<size_t>(w.block_indices[entry]);
        std::vector<float> k(l.key_size), v(l.value_size);
        read_key(l, &w.key_blocks[block * l.key_block_bytes()], slot, kv_head, k.data());
        read_value(l, &w.value_blocks[block * l.value_block_bytes()], slot, kv_head, v.data());
        std::vector<double> key(k.begin(), k.end());
        for (size_t i = 0; i < w.rotated.size(); ++i) {
            if (static_cast<size_t>(w.rotated[i]) != entry) continue;
            const size_t at = i * w.delta_width + (w.delta_width == 1 ? 0 : slot);
            const float* lut = &w.lut[static_cast<size_t>(w.deltas[at]) * r];
            for (size_t p = 0; p < r / 2; ++p) {
                const size_t a = w.config.interleaved ? 2 * p : p;
                const size_t b = w.config.interleaved ? 2 * p + 1 : p + r / 2;
                const double x = key[a], y = key[b];
                key[a] = x * lut[p] + y * lut[r / 2 + p];
                key[b] = y * lut[p] - x * lut[r / 2 + p];
            }
        }
        keys.insert(keys.end(), key.begin(), key.end());
        values.insert(values.end(), v.begin(), v.end());
    }

    void row(World& w, size_t token, size_t position, size_t h, const std::vector<double>& keys,
             const std::vector<double>& values, double* score) {
        const size_t d = w.config.layout.key_size, dv = w.config.layout.value_size;
        const size_t window = w.config.sliding_window;
        const float* q = &w.query[(token * w.config.heads + h) * d];
        std::vector<double> p(position + 1);
        double sum = w.sinks.empty() ? 0 : std::exp(double{w.sinks[h]});
        for (size_t j = 0; j <= position; ++j) {
            if (window && position - j >= window) continue;
            double dot = 0;
            for (size_t i = 0; i < d; ++i) dot += q[i] * keys[j * d + i];
            const double bias =
                w.slopes.empty() ? 0 : -double{w.slopes[h]} * static_cast<double>(position - j);
            double logit = dot * double{w.config.scale};
            if (const double cap = w.config.soft_cap; cap > 0) logit = cap * std::tanh(logit / cap);
            sum += p[j] = std::exp(logit + bias);
        }
        for (size_t j = 0; j <= position; ++j) {
            for (size_t i = 0; i < dv; ++i)
                output[(token * w.config.heads + h) * dv + i] += p[j] / sum * values[j * dv + i];
            if (score) score[j] += p[j] / sum;
        }
    }
};

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        if (!(difference <= largest)) largest = difference;  // keeps a NaN
    }
    return largest;
}

std::string describe(const World& w, Isa isa) {
    const CacheLayout& l = w.config.layout;
    std::string text = std::string(isa_name(isa)) + " " + cache_format_name(l.format);
    if (w.config.soft_cap > 0) text += " capped at " + std::to_string(w.config.soft_cap);
    for (size_t n :
         {l.block_size, l.kv_heads, w.config.heads, l.key_size, l.value_size,
          w.config.sliding_window, w.config.rotary_dims, w.rotated.size(), w.delta_width})
        text += " " + std::to_string(n);
    for (size_t s = 0; s < w.batch_size(); ++s)
        text += " " + std::to_string(w.past[s]) + "+" + std::to_string(w.fresh(s));
    return text;
}

/// Runs and compares output and scores; returns the output's largest error.
double check(World& w, Isa isa) {
    SCOPED_TRACE(describe(w, isa));
    paged_attention(w.config, w.view(), isa);
    const Expected expected(w);
    const double bound = arithmetic_bound(w.config.layout, isa);
    const double error = largest_difference(w.output, expected.output);
    EXPECT_LE(error, bound);
    if (!w.windows.empty()) {
        // Sums over heads and queries, so relative to the largest of them.
        const double mass = *std::max_element(expected.scores.begin(), expected.scores.end());
        EXPECT_LE(largest_difference(w.scores, expected.scores), bound * std::max(1.0, mass));
    }
    return error;
}

constexpr std::array<size_t, 5> kv_head_counts{1, 2, 3, 5, 8}, ratios{1, 3, 4, 6, 7};
constexpr std::array<size_t, 8> head_sizes{32, 48, 64, 72, 80, 96, 128, 256};
constexpr std::array<size_t, 3> block_sizes{16, 32, 64};

AttentionConfig random_config(CacheFormat format, std::mt19937& random) {
    AttentionConfig c;
    c.layout.format = format;
    c.layout.block_size = block_sizes[pick(random, 0, 2)];
    c.layout.kv_heads = kv_head_counts[pick(random, 0, 4)];
    c.layout.key_size = head_sizes[pick(random, 0, 7)];
    c.layout.value_size = pick(random, 0, 1) ? c.layout.key_size : head_sizes[pick(random, 0, 7)];
    c.heads = c.layout.kv_heads * ratios[pick(random, 0, 4)];
    c.scale = 1 / std::sqrt(static_cast<float>(c.layout.key_size));
    c.sliding_window = pick(random, 0, 2) ? 0 : pick(random, 1, 200);
    c.rotary_dims = pick(random, 0, 1) ? c.layout.key_size : c.layout.key_size / 4 * 2;
    c.interleaved = pick(random, 0, 1);
    if (pick(random, 0, 2) == 0) c.soft_cap = std::exp2(static_cast<float>(pick(random, 0, 7)) - 1);
    return c;
}

void rotate_at_random(World& w, std::mt19937& random) {
    make_lut(w, 100);
    w.delta_width = pick(random, 0, 1) ? 1 : w.config.layout.block_size;
    for (size_t i = 0; i < w.block_indices.size(); ++i) {
        if (pick(random, 0, 2) == 0) continue;
        w.rotated.push_back(static_cast<int32_t>(i));
        int32_t delta = 0;
        for (size_t t = 0; t < w.delta_width; ++t) {
            if (t == 0 || pick(random, 0, 5) == 0)
                delta = static_cast<int32_t>(pick(random, 0, 99));
            w.deltas.push_back(delta);
        }
    }
}

/// A batch of lengths from 1 to 700 in any mix of chunks and decodes; about `work` million
/// multiplications of the reference.
World random_world(const AttentionConfig& config, std::mt19937& random, size_t work) {
    std::vector<Length> lengths;
    double left = static_cast<double>(work) * 1e6;
    while (left > 0 && lengths.size() < 8) {
        const size_t context = pick(random, 0, 3) ? pick(random, 1, 100) : pick(random, 1, 700);
        const size_t row =
            context * config.heads * (config.layout.key_size + config.layout.value_size);
        const size_t rows = std::max<size_t>(2, work * 2000000 / row);
        const size_t fresh =
            pick(random, 0, 1) ? 1 : pick(random, 1, std::min<size_t>({context, rows, 70}));
        left -= static_cast<double>(row * fresh);
        lengths.push_back({context - fresh, fresh});
    }
    World w = make_world(config, lengths, random);
    if (pick(random, 0, 1)) rotate_at_random(w, random);
    if (pick(random, 0, 2) == 0) w.sinks = normal(config.heads, random, 2);
    if (pick(random, 0, 3) == 0)
        for (size_t h = 0; h < config.heads; ++h)
            w.slopes.push_back(
                std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(config.heads)));
    if (pick(random, 0, 1))
        for (size_t s = 0; s < lengths.size(); ++s)
            w.windows.push_back(static_cast<int32_t>(pick(random, 0, 2) * pick(random, 0, 40)));
    return w;
}

World random_world(CacheFormat format, std::mt19937& random, size_t work) {
    return random_world(random_config(format, random), random, work);
}

class PagedAttention : public testing::TestWithParam<CacheFormat> {};

TEST_P(PagedAttention, EqualsTheDefinitionForRandomShapesAndBatches) {
    std::mt19937 random(7);
    for (int i = 0; i < 20; ++i) {
        World w = random_world(GetParam(), random, 8);
        for (Isa isa : isas()) {
            if (isa == Isa::scalar && i % 3) continue;
            check(w, isa);
            if (testing::Test::HasFailure()) return;
        }
    }
}

// Every kv heads x head size x block size, every kv heads x ratio, every key size x value size,
// with batches, windows, sinks, slopes, rotation and scores at random.
TEST_P(PagedAttention, EqualsTheDefinitionForEveryShape) {
    std::mt19937 random(16);
    for (size_t i = 0; i < kv_head_counts.size() * head_sizes.size() * block_sizes.size(); ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = kv_head_counts[i % kv_head_counts.size()];
        config.layout.key_size = head_sizes[i % head_sizes.size()];
        config.layout.value_size = head_sizes[(i + i / head_sizes.size()) % head_sizes.size()];
        config.layout.block_size = block_sizes[i % block_sizes.size()];
        config.heads = config.layout.kv_heads * ratios[i / kv_head_counts.size() % ratios.size()];
        config.scale = 1 / std::sqrt(static_cast<float>(config.layout.key_size));
        config.rotary_dims = i % 2 ? config.layout.key_size : config.layout.key_size / 4 * 2;
        World w = random_world(config, random, 1);
        for (Isa isa : isas())
            if (isa != Isa::scalar || i % 7 == 0) check(w, isa);
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(PagedAttention, EveryIsaWritesTheSameBytes) {
    std::mt19937 random(8);
    for (int i = 0; i < 12; ++i) {
        World w = random_world(GetParam(), random, 1);
        write_keys_values(w.config.layout, w.view(), Isa::scalar);
        const auto keys = w.key_blocks, values = w.value_blocks;
        for (Isa isa : isas()) {
            std::fill(w.output.begin(), w.output.end(), 0.0f);
            write_keys_values(w.config.layout, w.view(), isa);
            EXPECT_EQ(w.key_blocks, keys) << describe(w, isa);
            EXPECT_EQ(w.value_blocks, values) << describe(w, isa);
        }
    }
}

TEST_P(PagedAttention, ReadsBackWhatWasWrittenWithinTheFormatsStep) {
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
                double step = 0;
                if (l.format == CacheFormat::bf16) step = std::abs(wanted[d]) / 256;
                if (l.format == CacheFormat::f16) step = std::abs(wanted[d]) / 2048 + 1e-7;
                if (l.format == CacheFormat::u8) step = (*high - *low) / 510 * 1.001;
                if (l.format == CacheFormat::u4) step = (*high - *low) / 30 * 1.001;
                ASSERT_LE(std::abs(x[d] - wanted[d]), step) << describe(w, Isa::scalar);
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

/// Keys of one head position by position, turned to `position`.
std::vector<float> turned(const World& w, const std::vector<float>& keys,
                          const std::vector<size_t>& positions) {
    const size_t d = w.config.layout.key_size, heads = w.config.layout.kv_heads;
    const size_t half = w.config.rotary_dims / 2;
    std::vector<float> out = keys;
    for (size_t row = 0; row < keys.size() / d; ++row)
        for (size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(positions[row / heads]) *
                                 std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
            const size_t a = row * d + (w.config.interleaved ? 2 * i : i);
            const size_t b = row * d + (w.config.interleaved ? 2 * i + 1 : i + half);
            out[a] = static_cast<float>(keys[a] * std::cos(angle) - keys[b] * std::sin(angle));
            out[b] = static_cast<float>(keys[a] * std::sin(angle) + keys[b] * std::cos(angle));
        }
    return out;
}

// Eviction: keys written at p and read with delta e, against keys written at p - e; both against an
// f32 cache written at p - e, in double.
TEST_P(PagedAttention, RotatedCacheIsAsGoodAsOneWrittenAtTheLowerPositions) {
    std::mt19937 random(10);
    for (int i = 0; i < 8; ++i) {
        AttentionConfig config = random_config(GetParam(), random);
        config.sliding_window = 0;
        const size_t tokens = 90, block = config.layout.block_size;
        World w = make_world(config, {{0, tokens}}, random);
        make_lut(w, 2000);
        const std::vector<float> keys = w.key;
        w.delta_width = i % 2 ? 1 : block;
        std::vector<size_t> low(tokens), high(tokens);
        for (size_t b = 0; b < w.block_indices.size(); ++b) {
            w.rotated.push_back(static_cast<int32_t>(b));
            for (size_t t = 0; t < w.delta_width; ++t)
                w.deltas.push_back(static_cast<int32_t>(pick(random, 0, 1999)));
        }
        for (size_t t = 0; t < tokens; ++t) {
            const size_t at = t / block * w.delta_width + (i % 2 ? 0 : t % block);
            low[t] = t;
            high[t] = t + static_cast<size_t>(w.deltas[at]);
        }
        World exact = w;
        exact.config.layout.format = CacheFormat::f32;
        exact.rotated.clear();
        exact.key_blocks.resize((w.block_indices.size() + 1) *
                                exact.config.layout.key_block_bytes());
        exact.value_blocks.resize((w.block_indices.size() + 1) *
                                  exact.config.layout.value_block_bytes());
        exact.key = turned(w, keys, low);
        write_keys_values(exact.config.layout, exact.view(), Isa::scalar);
        const Expected expected(exact);

        for (Isa isa : isas()) {
            World scratch = w;
            scratch.rotated.clear();
            scratch.key = turned(w, keys, low);
            paged_attention(scratch.config, scratch.view(), isa);
            w.key = turned(w, keys, high);
            paged_attention(w.config, w.view(), isa);
            const auto mean_square = [&](const std::vector<float>& out) {
                double sum = 0;
                for (size_t j = 0; j < out.size(); ++j)
                    sum += std::pow(out[j] - expected.output[j], 2);
                return std::sqrt(sum / static_cast<double>(out.size()));
            };
            const double without = mean_square(scratch.output), with = mean_square(w.output);
            if (config.layout.format == CacheFormat::f32) {
                EXPECT_LE(largest_difference(w.output, expected.output), 1e-5) << describe(w, isa);
            }
            EXPECT_LE(with, 1.1 * without + 1e-6) << describe(w, isa);
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST_P(PagedAttention, OneDeltaPerBlockEqualsEqualDeltasPerToken) {
    std::mt19937 random(11);
    for (int i = 0; i < 6; ++i) {
        World w = make_world(random_config(GetParam(), random), {{300, 1}, {20, 40}}, random);
        make_lut(w, 50);
        World tokens = w;
        tokens.delta_width = w.config.layout.block_size;
        for (size_t b = 0; b < w.block_indices.size(); b += 2) {
            w.rotated.push_back(static_cast<int32_t>(b));
            w.deltas.push_back(static_cast<int32_t>(pick(random, 0, 49)));
            tokens.deltas.insert(tokens.deltas.end(), tokens.delta_width, w.deltas.back());
        }
        tokens.rotated = w.rotated;
        for (Isa isa : isas()) {
            paged_attention(w.config, w.view(), isa);
            paged_attention(tokens.config, tokens.view(), isa);
            EXPECT_EQ(w.output, tokens.output) << describe(w, isa);
        }
    }
}

TEST_P(PagedAttention, SequencesReadASharedBlockAtTheirOwnDeltas) {
    std::mt19937 random(12);
    World w = make_world(random_config(GetParam(), random), {{70, 1}, {70, 1}, {70, 1}}, random);
    make_lut(w, 50);
    for (size_t s = 1; s < 3; ++s)
        w.block_indices[static_cast<size_t>(w.block_begins[s])] = w.block_indices[0];
    w.rotated = {0, w.block_begins[1]};
    w.deltas = {17, 40};
    for (Isa isa : isas()) check(w, isa);
}

TEST_P(PagedAttention, ALayerWithoutItsOwnCacheLeavesItAsItIs) {
    std::mt19937 random(13);
    World w = make_world(random_config(GetParam(), random), {{90, 1}, {0, 33}}, random);
    write_keys_values(w.config.layout, w.view(), Isa::scalar);
    w.config.write_kv_cache = false;
    w.key.clear();
    w.value.clear();
    const auto keys = w.key_blocks, values = w.value_blocks;
    for (Isa isa : isas()) check(w, isa);
    EXPECT_EQ(w.key_blocks, keys);
    EXPECT_EQ(w.value_blocks, values);
}

TEST_P(PagedAttention, AppendingATokenLeavesTheBytesOfTheOthers) {
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

TEST_P(PagedAttention, LongDecodeIsCutAlongTheKeys) {
    std::mt19937 random(15);
    AttentionConfig config = random_config(GetParam(), random);
    config.layout.kv_heads = 1;
    config.heads = 3;
    config.sliding_window = 0;
    World w = make_world(config, {{4000, 1}, {1500, 3}}, random);
    w.sinks = normal(3, random);
    w.windows = {1, 2};
    for (Isa isa : isas()) check(w, isa);
    w.config.sliding_window = 900;
    for (Isa isa : isas()) check(w, isa);
}

/// Tokens and rows around the sizes at which the work is divided otherwise: fewer rows than a
/// prompt kernel takes, one tile, several; six rows at a time, 128 keys at a time.
TEST_P(PagedAttention, PromptChunksOfEveryLengthEqualTheDefinition) {
    std::mt19937 random(16);
    const size_t past[] = {0, 1, 15, 100, 333}, windows[] = {0, 0, 1, 3, 40, 128};
    for (size_t fresh : {2, 7, 8, 9, 13, 23, 24, 25, 31, 32, 33, 95, 96, 97, 193}) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.kv_heads = pick(random, 1, 2);
        config.heads = config.layout.kv_heads * (fresh < 90 ? pick(random, 1, 7) : 1);
        config.sliding_window = windows[pick(random, 0, 5)];
        World w = make_world(config, {{past[pick(random, 0, 4)], fresh}}, random);
        if (pick(random, 0, 1)) rotate_at_random(w, random);
        if (pick(random, 0, 1)) w.sinks = normal(config.heads, random, 2);
        if (pick(random, 0, 3) == 0) w.slopes = normal(config.heads, random, 0.1f);
        w.windows = {static_cast<int32_t>(pick(random, 0, 1) * fresh)};
        for (Isa isa : isas())
            if (isa != Isa::scalar) check(w, isa);
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(PagedAttention, PromptChunksOfUnusualBlocksAndHeadsEqualTheDefinition) {
    std::mt19937 random(17);
    const size_t shapes[][3] = {{128, 64, 64},
                                {256, 32, 128},
                                {16, 10, 6},
                                {32, 258, 34},
                                {48, 1024, 520}};  // block size, key size, value size
    for (const auto& [block, key, value] : shapes) {
        AttentionConfig config = random_config(GetParam(), random);
        config.layout.block_size = block;
        config.layout.key_size = key;
        config.layout.value_size = value;
        config.layout.kv_heads = 1;
        config.heads = 2;
        config.rotary_dims = key;
        config.scale = 1 / std::sqrt(static_cast<float>(key));
        World w = make_world(config, {{150, 40}, {300, 1}, {0, 14}}, random);
        for (Isa isa : isas()) check(w, isa);
        rotate_at_random(w, random);
        for (Isa isa : isas()) check(w, isa);
    }
}

// One token holds nearly all of a row's mass and has a tiny value: what is left of the mass is
// small against the largest probability, but makes the output.
TEST_P(PagedAttention, PromptChunksKeepTheTailBesideAnAttentionSink) {
    std::mt19937 random(18);
    AttentionConfig config = random_config(GetParam(), random);
    config.layout.key_size = config.layout.value_size = 64;
    config.layout.kv_heads = 1;
    config.heads = 3;
    config.scale = 0.125f;
    config.sliding_window = config.rotary_dims = 0;
    World w = make_world(config, {{0, 200}}, random);
    for (size_t d = 0; d < 64; ++d) {
        w.key[d] = 1.2f;
        w.value[d] *= 0.01f;
    }
    for (float& q : w.query) q += 0.6f;  // 5.8 above the others' logits
    for (Isa isa : isas()) check(w, isa);
}

INSTANTIATE_TEST_SUITE_P(Formats, PagedAttention, testing::ValuesIn(formats),
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
    for (CacheFormat format : formats)
        EXPECT_EQ(parse_cache_format(cache_format_name(format)), format);
    EXPECT_THROW(parse_cache_format("i8"), std::invalid_argument);
}

TEST(CacheLayout, RefusesSizesItCannotHold) {
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 24, 1, 64, 64}.check()), std::invalid_argument);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 0, 64, 64}.check()), std::invalid_argument);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 1, 63, 64}.check()), std::invalid_argument);
    EXPECT_THROW((CacheLayout{CacheFormat::u8, 32, 1, 64, 0}.check()), std::invalid_argument);
}

}  // namespace
}  // namespace pagewheel::kernels
