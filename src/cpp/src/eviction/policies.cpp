#include "eviction/policies.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "check.hpp"

namespace pagewheel {
namespace {

std::vector<double> scores_of(const EvictionView& view) {
    return {view.scores, view.scores + view.num_tokens};
}

std::vector<double> scores_by_lifetime(const EvictionView& view) {
    std::vector<double> values(view.num_tokens);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = double(view.scores[i]) / std::max(view.lifetimes[i], 1);
    return values;
}

/// Least attention goes; what counts as attention is in observed().
class HeavyHitters final : public EvictionPolicy {
public:
    HeavyHitters(ObservedQueries observed, bool by_lifetime)
        : m_observed(observed), m_by_lifetime(by_lifetime) {}
    ObservedQueries observed() const override { return m_observed; }
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const auto value = m_by_lifetime ? scores_by_lifetime(view) : scores_of(view);
        drop_least(view, sum_by_unit(view, value), count, dropped);
    }

private:
    ObservedQueries m_observed;
    bool m_by_lifetime;
};

class Streaming final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
    }
};

class KeyNorm final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const size_t begin = view.first_unit * view.unit_size,
                     end = view.last_unit * view.unit_size;
        std::vector<float> keys((end - begin) * view.kv_heads * view.head_size);
        view.read_keys(begin, end, keys.data());
        std::vector<double> value(view.num_tokens, 0);
        const float* key = keys.data();
        for (size_t i = begin; i < end; ++i)
            for (size_t h = 0; h < view.kv_heads; ++h, key += view.head_size)
                value[i] -= std::sqrt(std::inner_product(key, key + view.head_size, key, 0.0));
        drop_least(view, sum_by_unit(view, value), count, dropped);
    }
};

class KeyDiff final : public EvictionPolicy {
public:
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        std::vector<double> value = likeness_to_mean_key(view, 0, view.num_tokens);
        for (double& v : value) v = -v;
        drop_least(view, sum_by_unit(view, value), count, dropped);
    }
};

class KVCrush final : public EvictionPolicy {
public:
    KVCrush(ObservedQueries observed, bool by_lifetime, const KVCrushConfig& config)
        : m_observed(observed), m_by_lifetime(by_lifetime), m_config(config) {}
    ObservedQueries observed() const override { return m_observed; }
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const size_t kept = view.last_unit - view.first_unit - count;
        const size_t representatives = std::min(m_config.budget, kept);
        const auto value = m_by_lifetime ? scores_by_lifetime(view) : scores_of(view);
        std::vector<size_t> candidates;
        drop_least(view, sum_by_unit(view, value), count + representatives, candidates);
        std::sort(candidates.begin(), candidates.end());
        const auto saved = crush_representatives(view, candidates, representatives,
                                                 kept * view.unit_size, m_config);
        for (size_t unit : candidates)
            if (std::find(saved.begin(), saved.end(), unit) == saved.end()) dropped.push_back(unit);
    }

private:
    ObservedQueries m_observed;
    bool m_by_lifetime;
    KVCrushConfig m_config;
};

class AdaptiveRKV final : public EvictionPolicy {
public:
    explicit AdaptiveRKV(const AdaptiveRKVConfig& config) : m_config(config) {}
    ObservedQueries observed() const override {
        return {m_config.window_size, m_config.window_size, false};
    }
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        const std::vector<double> score = sum_by_unit(view, scores_of(view));
        const size_t units = score.size(), kept = units - count;
        std::vector<size_t> order(units);
        std::iota(order.begin(), order.end(), size_t(0));
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return score[a] > score[b]; });
        const double wanted =
            m_config.attention_mass * std::accumulate(score.begin(), score.end(), 0.0);
        double mass = 0;
        size_t important = 0;
        while (important < kept && mass < wanted) mass += score[order[important++]];
        // The rest competes by how little its keys are like the others.
        std::vector<double> value = likeness_to_mean_key(view, view.first_unit * view.unit_size,
                                                         view.last_unit * view.unit_size);
        for (double& v : value) v = -v;
        std::vector<double> diversity = sum_by_unit(view, value);
        for (size_t i = 0; i < important; ++i) diversity[order[i]] = INFINITY;
        drop_least(view, diversity, count, dropped);
    }

private:
    AdaptiveRKVConfig m_config;
};

}  // namespace

void drop_least(const EvictionView& view, const std::vector<double>& value, size_t count,
                std::vector<size_t>& dropped) {
    check_invariant(count <= value.size(), "drop ", count, " of ", value.size(), " units");
    std::vector<size_t> order(value.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::partial_sort(
        order.begin(), order.begin() + ptrdiff_t(count), order.end(),
        [&](size_t a, size_t b) { return value[a] < value[b] || (value[a] == value[b] && a < b); });
    for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + order[i]);
}

std::vector<double> sum_by_unit(const EvictionView& view, const std::vector<double>& value) {
    std::vector<double> sums(view.last_unit - view.first_unit, 0);
    for (size_t u = 0; u < sums.size(); ++u)
        for (size_t i = 0; i < view.unit_size; ++i)
            sums[u] += value[(view.first_unit + u) * view.unit_size + i];
    return sums;
}

std::vector<double> likeness_to_mean_key(const EvictionView& view, size_t first, size_t last) {
    const size_t begin = view.first_unit * view.unit_size, end = view.last_unit * view.unit_size;
    const size_t width = view.kv_heads * view.head_size;
    std::vector<float> keys((last - first) * width);
    view.read_keys(first, last, keys.data());
    std::vector<double> mean(width, 0);
    for (float* head = keys.data(); head != keys.data() + keys.size(); head += view.head_size) {
        const double norm =
            std::sqrt(std::inner_product(head, head + view.head_size, head, 0.0)) + 1e-30;
        double* sum = mean.data() + size_t(head - keys.data()) % width;
        for (size_t d = 0; d < view.head_size; ++d) sum[d] += head[d] = float(head[d] / norm);
    }
    for (size_t h = 0; h < width; h += view.head_size) {
        double* head = mean.data() + h;
        const double norm =
            std::sqrt(std::inner_product(head, head + view.head_size, head, 0.0)) + 1e-30;
        for (size_t d = 0; d < view.head_size; ++d) head[d] /= norm;
    }
    std::vector<double> likeness(view.num_tokens, 0);
    for (size_t i = std::max(begin, first); i < std::min(end, last); ++i) {
        const float* key = keys.data() + (i - first) * width;
        likeness[i] =
            std::inner_product(key, key + width, mean.data(), 0.0) / double(view.kv_heads);
    }
    return likeness;
}

std::shared_ptr<EvictionPolicy> make_policy(const CacheEvictionConfig& config) {
    if (config.custom_policy) return config.custom_policy;
    const std::string name = config.policy_name();
    const size_t window = config.snapkv_window_size;
    const ObservedQueries accumulated{window ? window : ObservedQueries::all, ObservedQueries::all,
                                      true};
    const bool by_lifetime = config.aggregation_mode != AggregationMode::SUM;
    if (name == "sum") return std::make_shared<HeavyHitters>(accumulated, false);
    if (name == "norm_sum") return std::make_shared<HeavyHitters>(accumulated, true);
    if (name == "snapkv") {
        const ObservedQueries last{accumulated.prompt, window ? window : 1, false};
        return std::make_shared<HeavyHitters>(last, true);
    }
    if (name == "tova") return std::make_shared<HeavyHitters>(ObservedQueries{1, 1, false}, false);
    if (name == "streaming") return std::make_shared<Streaming>();
    if (name == "kvcrush")
        return std::make_shared<KVCrush>(accumulated, by_lifetime, config.kvcrush_config);
    if (name == "adaptive_rkv") return std::make_shared<AdaptiveRKV>(config.adaptive_rkv_config);
    if (name == "key_norm") return std::make_shared<KeyNorm>();
    check_invariant(name == "key_diff", "no policy '", name, "'");
    return std::make_shared<KeyDiff>();
}

}  // namespace pagewheel
