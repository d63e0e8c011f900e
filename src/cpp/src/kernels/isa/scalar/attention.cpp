// Paged attention as it is defined, one number at a time. What Isa::scalar runs.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/tile.hpp"
#include "kernels/attention/write.hpp"
#include "kernels/half.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

/// x / 2^shift to the nearest integer, ties to the even one.
uint32_t shifted_to_nearest(uint32_t x, uint32_t shift) {
    return (x + (1u << (shift - 1)) - 1 + ((x >> shift) & 1)) >> shift;
}

uint16_t half_of(float x) {
    const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000u,
                   magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)  // a NaN stays one
        return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude >= 0x38800000u)  // the carry out of the digits rounds up into the exponent
        return static_cast<uint16_t>(sign | shifted_to_nearest(magnitude - 0x38000000u, 13));
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return static_cast<uint16_t>(sign);
    const uint32_t digits = (magnitude & 0x7fffffu) | 0x800000u;
    return static_cast<uint16_t>(sign | shifted_to_nearest(digits, 126 - exponent));
}

struct Scalar {
    static void range(const float* x, size_t n, float& low, float& high) {
        low = *std::min_element(x, x + n);
        high = *std::max_element(x, x + n);
    }
    static void quantize(const float* x, size_t n, float low, float inverse, float levels,
                         uint8_t* codes) {
        for (size_t i = 0; i < n; ++i) {
            const float code = (x[i] - low) * inverse;
            codes[i] = code > 0 ? static_cast<uint8_t>(std::nearbyint(std::min(code, levels))) : 0;
        }
    }
    static uint16_t half(float x) { return half_of(x); }
    static float float_of(uint16_t half) { return float_of_half(half); }
    static void to_bf16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; ++i) {
            const uint32_t bits = bits_of_float(x[i]);
            out[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
    }
    static void to_f16(const float* x, size_t n, uint16_t* out) {
        for (size_t i = 0; i < n; ++i) out[i] = half_of(x[i]);
    }
};

/// x [key_size] rotated up by the angles of a LUT row [rotary_dims].
void rotate(const AttentionConfig& config, const float* row, float* x) {
    const size_t half = config.rotary_dims / 2;
    for (size_t i = 0; i < half; ++i) {
        float& a = x[config.interleaved ? 2 * i : i];
        float& b = x[config.interleaved ? 2 * i + 1 : i + half];
        const float x0 = a, y0 = b;
        a = x0 * row[i] - y0 * row[half + i];
        b = x0 * row[half + i] + y0 * row[i];
    }
}

/// One sequence.
class Reference {
public:
    Reference(const AttentionConfig& config, const AttentionBatch& batch, size_t sequence)
        : config_(config), layout_(config.layout), batch_(batch) {
        begin_ = static_cast<size_t>(batch.tables.subsequence_begins[sequence]);
        end_ = static_cast<size_t>(batch.tables.subsequence_begins[sequence + 1]);
        past_ = static_cast<size_t>(batch.tables.past_lens[sequence]);
        first_entry_ = static_cast<size_t>(batch.tables.block_indices_begins[sequence]);
        key_.resize(layout_.key_size);
        value_.resize(layout_.value_size);
    }

    size_t context() const { return past_ + end_ - begin_; }

    /// scores [context] += the probabilities of the last `scored` tokens; null for none.
    void run(size_t scored, float* scores) {
        for (size_t token = begin_; token < end_; ++token)
            for (size_t head = 0; head < config_.heads; ++head) {
                attend(token, head);
                if (!scores || end_ - token > scored) continue;
                for (size_t j = 0; j < probabilities_.size(); ++j)
                    scores[first_key_ + j] += probabilities_[j];
            }
    }

private:
    size_t block_at(size_t position) const {
        return static_cast<size_t>(
            batch_.tables.block_indices[first_entry_ + position / layout_.block_size]);
    }

    float capped(float logit) const {
        const float cap = config_.soft_cap;
        return cap > 0 ? cap * std::tanh(logit / cap) : logit;
    }

    float logit(const float* query, size_t head, size_t position, size_t key_position) {
        const size_t slot = key_position % layout_.block_size;
        const size_t kv_head = head / (config_.heads / layout_.kv_heads);
        read_key(layout_, batch_.key_blocks + block_at(key_position) * layout_.key_block_bytes(),
                 slot, kv_head, key_.data());
        query_.assign(query, query + layout_.key_size);
        if (const int32_t* deltas =
                deltas_of_block(batch_.tables, first_entry_ + key_position / layout_.block_size)) {
            const auto delta =
                static_cast<size_t>(deltas[batch_.tables.delta_width == 1 ? 0 : slot]);
            rotate(config_, batch_.tables.rotation_trig_lut.values + delta * config_.rotary_dims,
                   query_.data());
        }
        float dot = 0;
        for (size_t d = 0; d < layout_.key_size; ++d) dot += query_[d] * key_[d];
        const float distance = static_cast<float>(position - key_position);
        return capped(dot * config_.scale) -
               (batch_.alibi_slopes ? batch_.alibi_slopes[head] * distance : 0);
    }

    /// One row of output; leaves the probabilities of the keys from first_key_.
    void attend(size_t token, size_t head) {
        const size_t position = past_ + token - begin_, window = config_.sliding_window;
        const float* query = batch_.query + (token * config_.heads + head) * layout_.key_size;
        first_key_ = window && position + 1 > window ? position + 1 - window : 0;
        probabilities_.clear();
        for (size_t j = first_key_; j <= position; ++j)
            probabilities_.push_back(logit(query, head, position, j));

        float maximum = *std::max_element(probabilities_.begin(), probabilities_.end());
        if (batch_.sinks) maximum = std::max(maximum, batch_.sinks[head]);
        float sum = batch_.sinks ? std::exp(batch_.sinks[head] - maximum) : 0;
        for (float& p : probabilities_) sum += p = std::exp(p - maximum);
        for (float& p : probabilities_) p /= sum;

        float* out = batch_.output + (token * config_.heads + head) * layout_.value_size;
        std::fill_n(out, layout_.value_size, 0.0f);
        for (size_t j = first_key_; j <= position; ++j) {
            read_value(layout_, batch_.value_blocks + block_at(j) * layout_.value_block_bytes(),
                       j % layout_.block_size, head / (config_.heads / layout_.kv_heads),
                       value_.data());
            for (size_t d = 0; d < layout_.value_size; ++d)
                out[d] += probabilities_[j - first_key_] * value_[d];
        }
    }

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch& batch_;
    size_t begin_, end_, past_, first_entry_, first_key_ = 0;
    std::vector<float> query_, key_, value_, probabilities_;
};

}  // namespace

void write_tokens_reference(const CacheLayout& layout, const AttentionBatch& batch, size_t sequence,
                            size_t first, size_t last) {
    write_tokens<Scalar>(layout, batch, sequence, first, last);
}

void paged_attention_reference(const AttentionConfig& config, const AttentionBatch& batch) {
    for (size_t s = 0; config.write_kv_cache && s < batch.tables.num_sequences(); ++s)
        write_tokens_reference(config.layout, batch, s, size_t(batch.tables.written_begins[s]),
                               size_t(batch.tables.written_begins[s + 1]));
    std::vector<size_t> score_begins(batch.tables.num_sequences(), 0);
    for (size_t s = 0; s + 1 < batch.tables.num_sequences(); ++s)
        score_begins[s + 1] = score_begins[s] + Reference(config, batch, s).context();
    run_phases(Phase{
        batch.tables.num_sequences(), [&](size_t s) {
            Reference reference(config, batch, s);
            const bool scored = batch.tables.has_scores();
            float* scores = scored ? &batch.tables.scores[score_begins[s]] : nullptr;
            if (scores) std::fill_n(scores, reference.context(), 0.0f);
            reference.run(scored ? static_cast<size_t>(batch.tables.score_windows[s]) : 0, scores);
        }});
}

}  // namespace pagewheel::kernels
