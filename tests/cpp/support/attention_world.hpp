// Random batches over a cache, and attention in double as it is defined, for tests of the kernels.
#pragma once

#include <array>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/paged_attention.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel::kernels {

/// Whether an ISA multiplies u8 and u4 caches in integers, with rounded queries and probabilities.
bool multiplies_integers(Isa isa);

/// Attention kernels and how exact they are: an ISA's, or some that a test made.
struct AttentionVariant {
    AttentionVariant(Isa isa)
        : name(isa.name()), kernels(isa.kernels().attention), integers(multiplies_integers(isa)) {}
    AttentionVariant(std::string name, const AttentionKernels& kernels, bool integers)
        : name(std::move(name)), kernels(kernels), integers(integers) {}

    std::string name;
    AttentionKernels kernels;
    bool integers;  // decode multiplies integers over u8 and u4 caches
};

/// A batch that owns its arrays, over a pool that starts as NaN.
struct World {
    AttentionConfig config;
    std::vector<int32_t> past, begins{0}, block_indices, block_begins{0};
    std::vector<size_t> asked;  // last new tokens that have queries; empty: all have
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
    size_t queries(size_t s) const { return asked.empty() ? fresh(s) : asked[s]; }
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
        b.tables = pack_tables();
        b.sinks = sinks.empty() ? nullptr : sinks.data();
        b.alibi_slopes = slopes.empty() ? nullptr : slopes.data();
        return b;
    }

private:
    /// Scores stay in `scores`.
    BatchTables pack_tables() {
        TableValues values;
        values.past_lens = past;
        values.subsequence_begins = begins;
        values.block_indices_begins = block_begins;
        values.score_windows = windows;
        if (!asked.empty()) values.ask(asked);
        values.layers = {{block_indices, rotated, deltas, lut, 0}};
        m_words.resize(values.num_words());
        values.pack(m_words.data());
        BatchTables tables(m_words.data(), m_words.size(), 0,
                           asked.empty() ? Queries::ALL : Queries::LOGITS);
        tables.scores = {scores.data(), windows.empty() ? 0 : scores.size()};
        return tables;
    }

    std::vector<int32_t> m_words;
};

/// Whether some of the batch is computed in products of bf16 numbers.
bool rounds_to_bf16(const World& w, const AttentionVariant& variant);

std::vector<float> normal(size_t n, std::mt19937& random, float deviation = 1);
size_t pick(std::mt19937& random, size_t low, size_t high);

struct Length {
    size_t past, fresh;
};

/// Sequences with their blocks shuffled over a pool and the past tokens written to it.
World make_world(const AttentionConfig& config, const std::vector<Length>& lengths,
                 std::mt19937& random);

/// Keeps the queries of each sequence's last asked[s] new tokens alone, and no more of its window.
void ask(World& w, const std::vector<size_t>& asked);

/// The rows of all queries' output that ask() keeps.
std::vector<float> logits_indices(const World& w, const std::vector<size_t>& asked);

/// One LUT row per delta, theta 10000.
void make_lut(World& w, size_t rows);
void rotate_at_random(World& w, std::mt19937& random);

/// The definition in double over what the cache holds. Keys are rotated down here, where the
/// kernels rotate queries up.
struct Expected {
    std::vector<double> output, scores;

    explicit Expected(World& w);

private:
    void head(World& w, size_t s, size_t kv_head, size_t first_row, size_t score_begin);
    static void load(World& w, size_t s, size_t kv_head, size_t j, std::vector<double>& keys,
                     std::vector<double>& values);
    void row(World& w, size_t token, size_t position, size_t h, const std::vector<double>& keys,
             const std::vector<double>& values, double* score);
};

double largest_difference(const std::vector<float>& a, const std::vector<double>& b);
std::string describe(const World& w, const AttentionVariant& variant);

/// Runs each of them and compares output and scores.
void check(World& w, const std::vector<AttentionVariant>& variants);
inline void check(World& w, const AttentionVariant& variant) {
    check(w, std::vector{variant});
}

/// Those of available_isas(). The scalar one takes longest: without it where it is not asked for.
std::vector<AttentionVariant> isa_variants(bool with_scalar = true);

inline constexpr std::array<size_t, 5> kv_head_counts{1, 2, 3, 5, 8}, ratios{1, 3, 4, 6, 7};
inline constexpr std::array<size_t, 8> head_sizes{32, 48, 64, 72, 80, 96, 128, 256};
inline constexpr std::array<size_t, 3> block_sizes{16, 32, 64};

AttentionConfig random_config(CacheFormat format, std::mt19937& random);
/// A batch of lengths from 1 to 700 in any mix of chunks and decodes; about `work` million
/// multiplications of the reference.
World random_world(const AttentionConfig& config, std::mt19937& random, size_t work);
World random_world(CacheFormat format, std::mt19937& random, size_t work);

}  // namespace pagewheel::kernels
