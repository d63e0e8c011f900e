#include "support/attention_world.hpp"
#include "support/kernel_access.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

namespace pagewheel::kernels {
namespace {

/// Of rows of all new tokens, those of each sequence's last asked[s].
std::vector<float> last_rows(const World& w, const std::vector<float>& rows,
                             const std::vector<size_t>& asked) {
    const size_t width = rows.size() / size_t(w.begins.back());
    std::vector<float> kept;
    for (size_t s = 0; s < w.batch_size(); ++s) {
        const auto end = rows.begin() + ptrdiff_t(size_t(w.begins[s + 1]) * width);
        kept.insert(kept.end(), end - ptrdiff_t(asked[s] * width), end);
    }
    return kept;
}

/// Largest error of an element that arithmetic adds to what the cache holds, for values of unit
/// variance.
double arithmetic_bound(const World& w, const AttentionVariant& variant) {
    const CacheLayout& layout = w.config.layout;
    // A rounding of 2^-9 in each query and probability.
    if (rounds_to_bf16(w, variant)) return 2e-2;
    if (!is_quantized(layout.format)) return 1e-5;
    // Codes of up to 255 are summed before the zero point is taken off.
    if (!variant.integers) return 2e-5;
    // Integers of large heads are coarser where keys are rotated, lest sums overflow.
    return layout.key_size > 256 ? 3e-3 : 1e-3;
}

}  // namespace

bool rounds_to_bf16(const World& w, const AttentionVariant& variant) {
    if (!variant.kernels.rounds_to_bf16(w.config)) return false;
    for (size_t s = 0; s < w.batch_size(); ++s)
        if (w.queries(s) > 1) return true;
    return false;
}

bool multiplies_integers(Isa isa) {
    return isa.entry().required.has(CpuFeature::avx512_vnni);
}

std::vector<float> normal(size_t n, std::mt19937& random, float deviation) {
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<float> x(n);
    for (float& v : x) v = distribution(random);
    return x;
}

size_t pick(std::mt19937& random, size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(random);
}

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

void ask(World& w, const std::vector<size_t>& asked) {
    w.query = last_rows(w, w.query, asked);
    w.output = last_rows(w, w.output, asked);
    w.asked = asked;
    for (size_t s = 0; s < w.windows.size(); ++s)
        w.windows[s] = std::min(w.windows[s], int32_t(asked[s]));
}

std::vector<float> logits_indices(const World& w, const std::vector<size_t>& asked) {
    return last_rows(w, w.output, asked);
}

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

Expected::Expected(World& w) {
    const CacheLayout& l = w.config.layout;
    output.resize(w.output.size());
    scores.assign(w.all_contexts(), 0);
    size_t score_begin = 0, first_row = 0;
    for (size_t s = 0; s < w.batch_size(); ++s) {
        for (size_t h = 0; h < l.kv_heads; ++h) head(w, s, h, first_row, score_begin);
        first_row += w.queries(s);
        score_begin += w.context(s);
    }
}

void Expected::head(World& w, size_t s, size_t kv_head, size_t first_row, size_t score_begin) {
    const CacheLayout& l = w.config.layout;
    const size_t context = w.context(s), ratio = w.config.heads / l.kv_heads;
    std::vector<double> keys, values;
    for (size_t j = 0; j < context; ++j) load(w, s, kv_head, j, keys, values);
    for (size_t t = 0; t < w.queries(s); ++t)
        for (size_t q = 0; q < ratio; ++q) {
            const size_t after = w.queries(s) - t;
            const bool scored = !w.windows.empty() && after <= static_cast<size_t>(w.windows[s]);
            row(w, first_row + t, context - after, kv_head * ratio + q, keys, values,
                scored ? &scores[score_begin] : nullptr);
        }
}

void Expected::load(World& w, size_t s, size_t kv_head, size_t j, std::vector<double>& keys,
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

void Expected::row(World& w, size_t token, size_t position, size_t h,
                   const std::vector<double>& keys, const std::vector<double>& values,
                   double* score) {
    const size_t d = w.config.layout.key_size, dv = w.config.layout.value_size;
    const size_t window = w.config.sliding_window;
    const float* q = &w.query[(token * w.config.heads + h) * d];
    std::vector<double> p(position + 1);
    double largest = w.sinks.empty() ? -HUGE_VAL : double{w.sinks[h]};
    for (size_t j = 0; j <= position; ++j) {
        if (window && position - j >= window) continue;
        double even = 0, odd = 0;  // one sum would wait for each addition; d is even
        for (size_t i = 0; i < d; i += 2) {
            even += q[i] * keys[j * d + i];
            odd += q[i + 1] * keys[j * d + i + 1];
        }
        const double dot = even + odd;
        const double bias =
            w.slopes.empty() ? 0 : -double{w.slopes[h]} * static_cast<double>(position - j);
        double logit = dot * double{w.config.scale};
        if (const double cap = w.config.soft_cap; cap > 0) logit = cap * std::tanh(logit / cap);
        p[j] = logit + bias;
        largest = std::max(largest, p[j]);
    }
    double sum = w.sinks.empty() ? 0 : std::exp(w.sinks[h] - largest);
    for (size_t j = 0; j <= position; ++j) {
        const bool seen = !window || position - j < window;
        sum += p[j] = seen ? std::exp(p[j] - largest) : 0;
    }
    for (size_t j = 0; j <= position; ++j) {
        const double probability = p[j] / sum;
        for (size_t i = 0; i < dv; ++i)
            output[(token * w.config.heads + h) * dv + i] += probability * values[j * dv + i];
        if (score) score[j] += probability;
    }
}

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(a[i] - b[i]);
        if (!(difference <= largest)) largest = difference;  // keeps a NaN
    }
    return largest;
}

std::string describe(const World& w, const AttentionVariant& variant) {
    const CacheLayout& l = w.config.layout;
    std::string text = variant.name + " " + cache_format_name(l.format);
    if (rounds_to_bf16(w, variant)) text += " in bf16";
    if (w.config.soft_cap > 0) text += " capped at " + std::to_string(w.config.soft_cap);
    for (size_t n :
         {l.block_size, l.kv_heads, w.config.heads, l.key_size, l.value_size,
          w.config.sliding_window, w.config.rotary_dims, w.rotated.size(), w.delta_width})
        text += " " + std::to_string(n);
    for (size_t s = 0; s < w.batch_size(); ++s)
        text += " " + std::to_string(w.past[s]) + "+" + std::to_string(w.fresh(s));
    return text;
}

void check(World& w, const std::vector<AttentionVariant>& variants) {
    // What takes longest. Of a call it depends on what the call wrote to the cache alone.
    std::optional<Expected> expected;
    std::vector<uint8_t> keys, values;
    for (const AttentionVariant& variant : variants) {
        SCOPED_TRACE(describe(w, variant));
        paged_attention(w.config, w.view(), variant.kernels);
        if (!expected || w.key_blocks != keys || w.value_blocks != values) {
            expected.emplace(w);
            keys = w.key_blocks;
            values = w.value_blocks;
        }
        const double bound = arithmetic_bound(w, variant);
        EXPECT_LE(largest_difference(w.output, expected->output), bound);
        if (w.windows.empty()) continue;
        // Sums over heads and queries, so relative to the largest of them.
        const double mass = *std::max_element(expected->scores.begin(), expected->scores.end());
        EXPECT_LE(largest_difference(w.scores, expected->scores), bound * std::max(1.0, mass));
    }
}

std::vector<AttentionVariant> isa_variants(bool with_scalar) {
    std::vector<AttentionVariant> variants;
    for (const Isa isa : available_isas())
        if (with_scalar || isa != Isa::scalar) variants.emplace_back(isa);
    return variants;
}

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
    c.bf16_products = pick(random, 0, 1);
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

}  // namespace pagewheel::kernels
