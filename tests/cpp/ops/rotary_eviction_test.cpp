// Rotary models whose sequences lose tokens: the operation, driven as an engine does, against dense
// attention in double over the retained tokens at compacted positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ops/paged_attention.hpp"
#include "support/packed_tables.hpp"

namespace pagewheel {
namespace {

using Input = PagedAttention::Input;
using kernels::CacheFormat;

constexpr double pi = 3.14159265358979323846;

/// Rotary embedding: channel pair i of a head rotates by position * frequencies[i]; queries and
/// keys are multiplied by `magnitude`.
struct Rotary {
    std::vector<double> frequencies;
    double magnitude = 1;
};

/// Su et al., "RoFormer", arXiv:2104.09864, section 3.2.2: theta^(-2i / dims).
Rotary plain(double theta, size_t dims) {
    Rotary rotary;
    for (size_t i = 0; i < dims / 2; ++i)
        rotary.frequencies.push_back(std::pow(theta, -2.0 * double(i) / double(dims)));
    return rotary;
}

/// Llama 3.1 (Meta's llama-models, apply_scaling): wavelengths beyond context / low_factor are
/// stretched by `scale`, those below context / high_factor kept, those between interpolated.
Rotary llama3(double theta, size_t dims, double scale, double low_factor, double high_factor,
              double context) {
    Rotary rotary = plain(theta, dims);
    for (double& frequency : rotary.frequencies) {
        const double rotations = context * frequency / (2 * pi);
        const double smooth = (rotations - low_factor) / (high_factor - low_factor);
        const double kept = std::clamp(smooth, 0.0, 1.0);
        frequency *= kept + (1 - kept) / scale;
    }
    return rotary;
}

/// Peng et al., "YaRN", arXiv:2309.00071, definition 2 and equation 22 with alpha 1, beta 32:
/// h(f) = (1 - g) f / s + g f, and queries and keys times sqrt(1 / t) = 0.1 ln s + 1 each.
Rotary yarn(double theta, size_t dims, double scale, double context) {
    constexpr double alpha = 1, beta = 32;
    Rotary rotary = plain(theta, dims);
    for (double& frequency : rotary.frequencies) {
        const double rotations = context * frequency / (2 * pi);
        const double ramp = std::clamp((rotations - alpha) / (beta - alpha), 0.0, 1.0);
        frequency = (1 - ramp) * frequency / scale + ramp * frequency;
    }
    rotary.magnitude = 0.1 * std::log(scale) + 1;
    return rotary;
}

struct Settings {
    CacheFormat format = CacheFormat::f32;
    size_t block_size = 16, heads = 6, kv_heads = 2, key_size = 64, value_size = 48;
    bool interleaved = false;
    std::vector<Rotary> layers;
    /// Positions from one row of the LUT to the next.
    size_t granularity = 16;
    /// Higher than any delta.
    size_t max_position = 4096;
};

/// `x` [head_size] rotated to `position`, as the model does before it hands it to attention.
void rotate(const Settings& settings, const Rotary& rotary, double position, double* x) {
    const size_t half = rotary.frequencies.size();
    for (size_t i = 0; i < half; ++i) {
        const double c = std::cos(position * rotary.frequencies[i]) * rotary.magnitude;
        const double s = std::sin(position * rotary.frequencies[i]) * rotary.magnitude;
        double& a = x[settings.interleaved ? 2 * i : i];
        double& b = x[settings.interleaved ? 2 * i + 1 : i + half];
        const double a0 = a, b0 = b;
        a = a0 * c - b0 * s;
        b = a0 * s + b0 * c;
    }
}

/// What the model computed of one token in one layer, before rotation.
struct Token {
    std::vector<double> query, key, value;  // [heads * key_size], [kv_heads * ...]
};

/// A block of the sequence; all layers hold the same.
struct Block {
    int32_t id;
    std::vector<int32_t> deltas;             // [block_size] rows of the LUT since each was written
    std::vector<std::vector<Token>> tokens;  // [layers][up to block_size]

    /// Deltas of its tokens; a slot that is free yet may have any.
    std::vector<int32_t> written() const {
        return {deltas.begin(), deltas.begin() + std::ptrdiff_t(tokens[0].size())};
    }
};

/// One sequence in every layer's cache.
class Sequence {
public:
    Sequence(const Settings& settings, size_t num_blocks, unsigned seed)
        : m_settings(settings), m_random(seed) {
        for (size_t i = num_blocks; i > 0; --i) m_free.push_back(int32_t(i - 1));
        for (size_t layer = 0; layer < settings.layers.size(); ++layer) add_layer(layer);
    }

    size_t num_blocks() const { return m_blocks.size(); }

    /// Tokens [length, length + count) at the positions that follow the cache, or `positions`.
    void append(size_t count, std::vector<double> positions = {}) {
        const size_t first = m_length;
        if (positions.empty())
            for (size_t i = 0; i < count; ++i) positions.push_back(double(first + i));
        for (size_t i = 0; i < count; ++i) append_token();
        const ov::Tensor tables = pack_tables(count);
        for (size_t layer = 0; layer < m_ops.size(); ++layer) run(layer, count, positions, tables);
    }

    /// The blocks behind move down by one. Tokens that follow in a block that moved have not moved:
    /// such a block has deltas per token from then on.
    void evict(size_t index) {
        m_free.push_back(m_blocks[index].id);
        m_blocks.erase(m_blocks.begin() + std::ptrdiff_t(index));
        m_length -= m_settings.block_size;
        const auto rows = int32_t(m_settings.block_size / m_settings.granularity);
        for (size_t i = index; i < m_blocks.size(); ++i)
            for (int32_t& delta : m_blocks[i].deltas) delta += rows;
    }

    /// Says that token `index` of the cache was written so many positions above its place.
    void set_delta(size_t index, int32_t delta) {
        m_blocks[index / m_settings.block_size].deltas[index % m_settings.block_size] = delta;
    }
    /// Differences from dense attention of the last append's rows, all layers.
    std::vector<double> errors() const {
        std::vector<double> differences;
        for (size_t layer = 0; layer < m_ops.size(); ++layer) {
            const float* out = m_outputs[layer].data<const float>();
            for (size_t i = m_length - m_last; i < m_length; ++i)
                for (double wanted : dense(layer, i)) differences.push_back(*out++ - wanted);
        }
        return differences;
    }

    /// The same tokens in a fresh cache at compacted positions, nothing rotated at read; the last
    /// `count` of them in a call of their own.
    Sequence rewritten(size_t count) const {
        Sequence fresh(m_settings, m_blocks.size(), 0);
        fresh.m_replay = this;
        fresh.append(m_length - count);
        fresh.append(count);
        return fresh;
    }

private:
    void add_layer(size_t layer) {
        PagedAttention::Attributes attributes;
        kernels::AttentionConfig& config = attributes.config;
        config.layout = {m_settings.format, m_settings.block_size, m_settings.kv_heads,
                         m_settings.key_size, m_settings.value_size};
        config.heads = m_settings.heads;
        config.scale = 1 / std::sqrt(float(m_settings.key_size));
        config.rotary_dims = 2 * m_settings.layers[layer].frequencies.size();
        config.interleaved = m_settings.interleaved;
        attributes.layer = layer;
        m_ops.emplace_back();
        m_ops.back().set_attributes(attributes);
        const auto cache = [&](size_t block_bytes) {
            ov::Tensor tensor(ov::element::u8, {m_free.size(), block_bytes});
            std::fill_n(tensor.data<uint8_t>(), tensor.get_byte_size(), uint8_t{0xff});
            return tensor;
        };
        m_keys.push_back(cache(config.layout.key_block_bytes()));
        m_values.push_back(cache(config.layout.value_block_bytes()));
        m_outputs.emplace_back(ov::element::f32, ov::Shape{0});
        m_luts.push_back(make_lut(m_settings.layers[layer]));
    }

    /// Pure rotations.
    std::vector<float> make_lut(const Rotary& rotary) const {
        const size_t half = rotary.frequencies.size(),
                     rows = m_settings.max_position / m_settings.granularity;
        std::vector<float> lut(rows * 2 * half);
        for (size_t r = 0; r < rows; ++r)
            for (size_t i = 0; i < half; ++i) {
                const double angle = double(r * m_settings.granularity) * rotary.frequencies[i];
                lut[r * 2 * half + i] = float(std::cos(angle));
                lut[r * 2 * half + half + i] = float(std::sin(angle));
            }
        return lut;
    }

    std::vector<double> normal(size_t n) {
        std::normal_distribution<double> distribution;
        std::vector<double> x(n);
        for (double& v : x) v = distribution(m_random);
        return x;
    }

    Token token(size_t layer, size_t index) {
        if (m_replay) return m_replay->at(layer, index);
        return {normal(m_settings.heads * m_settings.key_size),
                normal(m_settings.kv_heads * m_settings.key_size),
                normal(m_settings.kv_heads * m_settings.value_size)};
    }

    void append_token() {
        if (m_length % m_settings.block_size == 0) {
            m_blocks.push_back({m_free.back(), std::vector<int32_t>(m_settings.block_size, 0),
                                std::vector<std::vector<Token>>(m_ops.size())});
            m_free.pop_back();
        }
        for (size_t layer = 0; layer < m_ops.size(); ++layer)
            m_blocks.back().tokens[layer].push_back(token(layer, m_length));
        m_blocks.back().deltas[m_length % m_settings.block_size] = 0;
        ++m_length;
    }

    const Token& at(size_t layer, size_t index) const {
        return m_blocks[index / m_settings.block_size].tokens[layer][index % m_settings.block_size];
    }

    /// Rows of x [heads, size], rotated and one after the other in f32.
    void put(size_t layer, std::vector<double> x, double position, float*& out) const {
        const size_t size = m_settings.key_size;
        for (size_t h = 0; h < x.size() / size; ++h)
            rotate(m_settings, m_settings.layers[layer], position, &x[h * size]);
        out = std::copy(x.begin(), x.end(), out);
    }

    void run(size_t layer, size_t count, const std::vector<double>& positions,
             const ov::Tensor& tables) {
        const size_t d = m_settings.key_size, kv_heads = m_settings.kv_heads;
        ov::TensorVector inputs(Input::num_inputs);
        const auto floats = [&](size_t input, size_t width) {
            inputs[input] = ov::Tensor(ov::element::f32, {count, width});
            return inputs[input].data<float>();
        };
        float* query = floats(Input::query, m_settings.heads * d);
        float* key = floats(Input::key, kv_heads * d);
        float* value = floats(Input::value, kv_heads * m_settings.value_size);
        for (size_t i = 0; i < count; ++i) {
            const Token& token = at(layer, m_length - count + i);
            put(layer, token.query, positions[i], query);
            put(layer, token.key, positions[i], key);
            value = std::copy(token.value.begin(), token.value.end(), value);
        }
        inputs[Input::key_blocks] = m_keys[layer];
        inputs[Input::value_blocks] = m_values[layer];
        inputs[Input::batch_tables] = tables;
        ov::TensorVector outputs{m_outputs[layer]};
        m_ops[layer].evaluate(outputs, inputs);
        m_outputs[layer] = outputs[0];
        m_last = count;
    }

    /// Of all layers, which have the same blocks and deltas.
    ov::Tensor pack_tables(size_t count) const {
        LayerTableValues layer;
        std::vector<int32_t> ids;
        size_t width = 1;
        for (const Block& block : m_blocks)
            if (block.written() != std::vector<int32_t>(block.tokens[0].size(), block.deltas[0]))
                width = m_settings.block_size;
        for (size_t i = 0; i < m_blocks.size(); ++i) {
            const Block& block = m_blocks[i];
            ids.push_back(block.id);
            if (block.written() == std::vector<int32_t>(block.tokens[0].size(), 0)) continue;
            layer.rotated_block_indices.push_back(int32_t(i));
            layer.rotation_deltas.insert(layer.rotation_deltas.end(), block.deltas.begin(),
                                         block.deltas.begin() + std::ptrdiff_t(width));
        }
        TableValues values;
        values.add(m_length - count, count, ids);
        values.score_windows = {0};
        layer.block_indices = ids;
        values.layers.assign(m_ops.size(), layer);
        for (size_t l = 0; l < m_ops.size(); ++l) values.layers[l].rotation_trig_lut = m_luts[l];
        ov::Tensor tables(ov::element::i32, {values.num_words()});
        values.pack(tables.data<int32_t>());
        return tables;
    }

    /// Attention of token `index` to the tokens up to it, all of them where they are now.
    std::vector<double> dense(size_t layer, size_t index) const {
        const size_t d = m_settings.key_size, dv = m_settings.value_size;
        const Rotary& rotary = m_settings.layers[layer];
        std::vector<double> out(m_settings.heads * dv);
        for (size_t h = 0; h < m_settings.heads; ++h) {
            const size_t kv_head = h / (m_settings.heads / m_settings.kv_heads);
            std::vector<double> query(&at(layer, index).query[h * d],
                                      &at(layer, index).query[h * d] + d);
            rotate(m_settings, rotary, double(index), query.data());
            std::vector<double> p(index + 1);
            double sum = 0;
            for (size_t j = 0; j <= index; ++j) {
                std::vector<double> key(&at(layer, j).key[kv_head * d],
                                        &at(layer, j).key[kv_head * d] + d);
                rotate(m_settings, rotary, double(j), key.data());
                double dot = 0;
                for (size_t i = 0; i < d; ++i) dot += query[i] * key[i];
                sum += p[j] = std::exp(dot / std::sqrt(double(d)));
            }
            for (size_t j = 0; j <= index; ++j)
                for (size_t i = 0; i < dv; ++i)
                    out[h * dv + i] += p[j] / sum * at(layer, j).value[kv_head * dv + i];
        }
        return out;
    }

    Settings m_settings;
    std::mt19937 m_random;
    const Sequence* m_replay = nullptr;
    std::vector<int32_t> m_free;
    std::vector<Block> m_blocks;
    size_t m_length = 0, m_last = 0;
    std::vector<PagedAttention> m_ops;
    std::vector<ov::Tensor> m_keys, m_values, m_outputs;
    std::vector<std::vector<float>> m_luts;
};

double largest(const std::vector<double>& errors) {
    double value = 0;
    for (double error : errors)
        if (!(std::abs(error) <= value)) value = std::abs(error);  // keeps a NaN
    return value;
}

double root_mean_square(const std::vector<double>& errors) {
    double sum = 0;
    for (double error : errors) sum += error * error;
    return std::sqrt(sum / double(errors.size()));
}

/// A prompt, then chunks, decodes and evictions at random.
void evict_at_random(const Settings& settings, unsigned seed) {
    Sequence sequence(settings, 60, seed);
    std::mt19937 random(seed);
    sequence.append(20 * settings.block_size);
    for (int round = 0; round < 12; ++round) {
        for (size_t count = 1 + random() % 3; count > 0 && sequence.num_blocks() > 2; --count)
            sequence.evict(random() % (sequence.num_blocks() - 1));  // the last may be partial
        sequence.append(1);
        const double step_error = largest(sequence.errors());
        EXPECT_LE(step_error, 1e-5) << "decode after round " << round;
        sequence.append(1 + random() % (3 * settings.block_size));
        EXPECT_LE(largest(sequence.errors()), 1e-5) << "chunk after round " << round;
        if (testing::Test::HasFailure()) return;
    }
}

TEST(RotaryEviction, HighBase) {
    Settings settings;
    settings.layers = {plain(5e5, 64)};
    evict_at_random(settings, 1);
}

TEST(RotaryEviction, Llama3Scaling) {
    Settings settings;
    settings.key_size = 128;
    settings.layers = {llama3(5e5, 128, 8, 1, 4, 8192)};
    evict_at_random(settings, 2);
    settings.layers = {llama3(5e5, 128, 32, 1, 4, 512)};
    evict_at_random(settings, 3);
}

TEST(RotaryEviction, YarnWithItsAttentionScaling) {
    Settings settings;
    settings.block_size = 32;
    settings.granularity = 32;
    settings.layers = {yarn(1e4, 64, 16, 4096)};
    evict_at_random(settings, 4);
}

TEST(RotaryEviction, TwoBasesInTwoLayers) {
    Settings settings;
    settings.heads = 4;
    settings.kv_heads = 1;
    settings.layers = {plain(1e6, 64), plain(1e4, 64)};
    evict_at_random(settings, 5);
}

TEST(RotaryEviction, InterleavedPairsOfAPartOfTheHead) {
    Settings settings;
    settings.key_size = 80;
    settings.interleaved = true;
    settings.layers = {plain(1e4, 32)};
    evict_at_random(settings, 6);
}

TEST(RotaryEviction, SurvivorsOfSingleTokenEvictionAtTheirOwnDeltas) {
    Settings settings;
    settings.granularity = 1;
    settings.layers = {plain(5e5, 64), plain(1e4, 64)};
    Sequence sequence(settings, 16, 7);
    // 150 of about 450 tokens are left, packed; each was written where it stood.
    std::mt19937 random(7);
    std::vector<double> positions;
    for (double position = 0; positions.size() < 150; position += 1 + random() % 5)
        positions.push_back(position);
    sequence.append(150, positions);
    for (size_t i = 0; i < 150; ++i) sequence.set_delta(i, int32_t(positions[i]) - int32_t(i));
    for (size_t count : {1, 1, 30}) {
        sequence.append(count);
        EXPECT_LE(largest(sequence.errors()), 1e-5);
    }
}

class EndlessSequence : public testing::TestWithParam<CacheFormat> {};

// Deltas add up while keys stay as they were written, so nothing accumulates but integers.
TEST_P(EndlessSequence, TenThousandEvictionsLeaveTheErrorWhereItWas) {
    Settings settings;
    settings.format = GetParam();
    settings.heads = 2;
    settings.kv_heads = 1;
    settings.key_size = settings.value_size = 32;
    settings.max_position = 512;
    settings.layers = {plain(1e4, 32)};
    Sequence sequence(settings, 9, 8);
    std::mt19937 random(8);
    sequence.append(8 * settings.block_size);
    double with = 0, without = 0;
    for (int evictions = 1; evictions <= 10000; ++evictions) {
        sequence.evict(1 + random() % 6);  // the first block is a sink, the last is recent
        sequence.append(settings.block_size);
        if (evictions % 500 != 0) continue;
        const auto errors = sequence.errors();
        if (GetParam() == CacheFormat::f32) {
            ASSERT_LE(largest(errors), 1e-5) << evictions;
        }
        with += root_mean_square(errors);
        without += root_mean_square(sequence.rewritten(settings.block_size).errors());
        // The errors so far, each measured beside a cache that was written from scratch. A single
        // pair of them may lie further apart than their means.
        if (evictions >= 2000) {
            ASSERT_LE(with, 1.1 * without + 1e-6) << evictions;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, EndlessSequence,
                         testing::Values(CacheFormat::f32, CacheFormat::bf16, CacheFormat::u8,
                                         CacheFormat::u4),
                         [](const auto& info) { return kernels::cache_format_name(info.param); });

}  // namespace
}  // namespace pagewheel
