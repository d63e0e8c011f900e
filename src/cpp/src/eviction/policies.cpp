// The built-in eviction policies. A new one is a class or a function, and an entry of the table.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {
namespace {

/// EvictionPolicyKind::make of a policy that is constructed from the config.
template <class Policy>
std::shared_ptr<EvictionPolicy> made(const CacheEvictionConfig& config) {
    return std::make_shared<Policy>(config);
}

/// EvictionPolicyKind::make of a policy that is a function, which looks at no attention.
template <void (*drop_units)(const EvictionView&, size_t, std::vector<size_t>&)>
std::shared_ptr<EvictionPolicy> made_of(const CacheEvictionConfig& /*config*/) {
    class Policy final : public EvictionPolicy {
    public:
        void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
            drop_units(view, count, dropped);
        }
    };
    return std::make_shared<Policy>();
}

/// Attention by token: [num_tokens].
std::vector<double> scores_of(const EvictionView& view) {
    return {view.scores, view.scores + view.num_tokens};
}

/// Attention by token, divided by the number of queries that could see it: [num_tokens].
std::vector<double> scores_by_lifetime(const EvictionView& view) {
    std::vector<double> values(view.num_tokens);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = double(view.scores[i]) / std::max(view.lifetimes[i], 1);
    return values;
}

/// Appends the `count` units of [view.first_unit, view.last_unit) with the least value;
/// value [last_unit - first_unit]. Of equal ones the first go.
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

/// Sums value [num_tokens] over the tokens of each unit that may go.
std::vector<double> sum_by_unit(const EvictionView& view, const std::vector<double>& value) {
    std::vector<double> sums(view.last_unit - view.first_unit, 0);
    for (size_t u = 0; u < sums.size(); ++u)
        for (size_t i = 0; i < view.unit_size; ++i)
            sums[u] += value[(view.first_unit + u) * view.unit_size + i];
    return sums;
}

/// For each token, the mean over kv heads of the cosine between its key and the mean direction of
/// the keys of tokens [first, last). [num_tokens]; only tokens that may go are filled.
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

/// The prompt's last snapkv_window_size queries, and all while generating.
ObservedQueries accumulated_queries(const CacheEvictionConfig& config) {
    const size_t window = config.snapkv_window_size;
    return {window ? window : ObservedQueries::all, ObservedQueries::all, true};
}

/// Keeps the tokens that received the most attention; observed() says what counts as attention.
class HeavyHitters : public EvictionPolicy {
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

template <bool by_lifetime>
std::shared_ptr<EvictionPolicy> make_accumulated(const CacheEvictionConfig& config) {
    return std::make_shared<HeavyHitters>(accumulated_queries(config), by_lifetime);
}

std::shared_ptr<EvictionPolicy> make_snapkv(const CacheEvictionConfig& config) {
    const size_t window = config.snapkv_window_size;
    const ObservedQueries last{window ? window : ObservedQueries::all, window ? window : 1, false};
    return std::make_shared<HeavyHitters>(last, true);
}

std::shared_ptr<EvictionPolicy> make_tova(const CacheEvictionConfig& /*config*/) {
    return std::make_shared<HeavyHitters>(ObservedQueries{1, 1, false}, false);
}

void drop_oldest(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
    for (size_t i = 0; i < count; ++i) dropped.push_back(view.first_unit + i);
}

void drop_longest(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
    const size_t begin = view.first_unit * view.unit_size, end = view.last_unit * view.unit_size;
    std::vector<float> keys((end - begin) * view.kv_heads * view.head_size);
    view.read_keys(begin, end, keys.data());
    std::vector<double> value(view.num_tokens, 0);
    const float* key = keys.data();
    for (size_t i = begin; i < end; ++i)
        for (size_t h = 0; h < view.kv_heads; ++h, key += view.head_size)
            value[i] -= std::sqrt(std::inner_product(key, key + view.head_size, key, 0.0));
    drop_least(view, sum_by_unit(view, value), count, dropped);
}

void drop_likest(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
    std::vector<double> value = likeness_to_mean_key(view, 0, view.num_tokens);
    for (double& v : value) v = -v;
    drop_least(view, sum_by_unit(view, value), count, dropped);
}

/// Keeps the tokens that received the most attention, which finds what the question in a prompt
/// asks for. While there is more of the prompt to read the question is not known: then keys unlike
/// the others stay, which keeps what is asked for later.
class Hybrid final : public HeavyHitters {
public:
    explicit Hybrid(const CacheEvictionConfig& config)
        : HeavyHitters(accumulated_queries(config), true) {}
    void drop(const EvictionView& view, size_t count, std::vector<size_t>& dropped) override {
        if (view.is_prefilling)
            drop_likest(view, count, dropped);
        else
            HeavyHitters::drop(view, count, dropped);
    }
};

/// Keeps what has a share of the attention, and then keys unlike the others.
class AdaptiveRKV final : public EvictionPolicy {
public:
    explicit AdaptiveRKV(const CacheEvictionConfig& config)
        : m_config(config.adaptive_rkv_config) {}
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

void check_adaptive_rkv(const CacheEvictionConfig& config, size_t /*block_size*/) {
    const AdaptiveRKVConfig& own = config.adaptive_rkv_config;
    check_argument(own.attention_mass >= 0 && own.attention_mass <= 1,
                   ParameterName("adaptive_rkv_config.attention_mass"), " is ", own.attention_mass,
                   "; allowed: 0 to 1");
    check_argument(own.window_size > 0, ParameterName("adaptive_rkv_config.window_size"),
                   " is 0; allowed: 1 or more");
}

using Bits = std::vector<bool>;

/// Gives one bit for each token of each candidate: whether it is among the `num_set` tokens of most
/// score.
std::vector<Bits> features(const EvictionView& view, const std::vector<size_t>& candidates,
                           size_t num_set) {
    const size_t begin = view.first_unit * view.unit_size, end = view.last_unit * view.unit_size;
    std::vector<size_t> order(end - begin);
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return view.scores[a] > view.scores[b]; });
    Bits set(view.num_tokens, false);
    for (size_t i = 0; i < std::min(num_set, order.size()); ++i) set[order[i]] = true;
    std::vector<Bits> bits;
    for (size_t unit : candidates) {
        const auto first = set.begin() + ptrdiff_t(unit * view.unit_size);
        bits.emplace_back(first, first + ptrdiff_t(view.unit_size));
    }
    return bits;
}

Bits anchor_of(const std::vector<Bits>& bits, size_t size, const KVCrushConfig& config) {
    Bits anchor(size, config.anchor_point_mode == KVCrushAnchorPointMode::ONES);
    std::mt19937_64 random(config.rng_seed);
    for (size_t i = 0; i < size; ++i) {
        if (config.anchor_point_mode == KVCrushAnchorPointMode::RANDOM) {
            anchor[i] = random() & 1;
        } else if (config.anchor_point_mode == KVCrushAnchorPointMode::ALTERNATING) {
            anchor[i] = i % 2 == 1;
        } else if (config.anchor_point_mode == KVCrushAnchorPointMode::MEAN) {
            const auto set = std::count_if(bits.begin(), bits.end(),
                                           [&](const Bits& unit) -> bool { return unit[i]; });
            anchor[i] = 2 * size_t(set) >= bits.size();
        }
    }
    return anchor;
}

/// `count` representatives of `candidates` (units): tokens are bits (1: among the `num_set` tokens
/// of most score), blocks are ordered by the Hamming distance to the anchor, and taken at even
/// steps.
std::vector<size_t> crush_representatives(const EvictionView& view,
                                          const std::vector<size_t>& candidates, size_t count,
                                          size_t num_set, const KVCrushConfig& config) {
    const std::vector<Bits> bits = features(view, candidates, num_set);
    const Bits anchor = anchor_of(bits, view.unit_size, config);
    std::vector<size_t> distance(candidates.size(), 0), order(candidates.size());
    for (size_t c = 0; c < candidates.size(); ++c)
        for (size_t i = 0; i < view.unit_size; ++i) distance[c] += bits[c][i] != anchor[i];
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return distance[a] < distance[b]; });
    // One from the middle of each of `count` buckets of equal size.
    std::vector<size_t> chosen;
    for (size_t i = 0; i < count; ++i)
        chosen.push_back(candidates[order[(2 * i + 1) * order.size() / (2 * count)]]);
    return chosen;
}

/// Keeps representatives of the blocks that few queries look at.
class KVCrush final : public EvictionPolicy {
public:
    explicit KVCrush(const CacheEvictionConfig& config)
        : m_observed(accumulated_queries(config)),
          m_by_lifetime(config.aggregation_mode != AggregationMode::SUM),
          m_config(config.kvcrush_config) {}
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

void check_kvcrush(const CacheEvictionConfig& config, size_t block_size) {
    const size_t budget = config.kvcrush_config.budget;
    check_argument(config.resolved_granularity() == EvictionGranularity::BLOCK,
                   "policy is 'kvcrush' and ", ParameterName("granularity"),
                   " is TOKEN; allowed: BLOCK, as it compares "
                   "blocks");
    check_argument(budget > 0, "policy is 'kvcrush' and ", ParameterName("kvcrush_config.budget"),
                   " is 0; allowed: 1 or more blocks");
    if (block_size == 0) return;
    const size_t blocks = config.get_evictable_size() / block_size;
    check_argument(budget <= blocks, ParameterName("kvcrush_config.budget"), " is ", budget,
                   "; allowed: at most the ", blocks, " evictable blocks");
}

}  // namespace

const std::vector<EvictionPolicyKind>& eviction_policies() {
    static const std::vector<EvictionPolicyKind> all{
        {"sum", "least attention goes (H2O, Zhang et al. 2023, arXiv:2306.14048)",
         "snapkv_window_size", true, &make_accumulated<false>},
        {"norm_sum",
         "least attention goes, divided by the number of queries that could see the token",
         "snapkv_window_size", true, &make_accumulated<true>},
        {"snapkv",
         "least attention goes, of the last snapkv_window_size queries before each decision "
         "(SnapKV, Li et al. 2024, arXiv:2404.14469)",
         "snapkv_window_size", true, &make_snapkv},
        {"streaming", "the oldest go (StreamingLLM, Xiao et al. 2023, arXiv:2309.17453)", "", false,
         &made_of<drop_oldest>},
        {"tova",
         "least attention of the last query goes (TOVA, Oren et al. 2024, arXiv:2401.06104)", "",
         true, &make_tova},
        {"kvcrush",
         "what received most attention stays, and representatives of the rest (KVCrush, Jha et "
         "al. 2025, arXiv:2503.00022)",
         "kvcrush_config, aggregation_mode, snapkv_window_size", false, &made<KVCrush>,
         &check_kvcrush},
        {"adaptive_rkv",
         "what carries a share of the attention stays, and of the rest the keys least like the "
         "others (after R-KV, Cai et al. 2025, arXiv:2505.24133)",
         "adaptive_rkv_config", true, &made<AdaptiveRKV>, &check_adaptive_rkv},
        {"hybrid", "what norm_sum drops; while a prompt is still read, what key_diff drops",
         "snapkv_window_size", true, &made<Hybrid>},
        {"key_norm", "keys of the greatest L2 norm go (Devoto et al. 2024, arXiv:2406.11430)", "",
         false, &made_of<drop_longest>},
        {"key_diff",
         "keys closest to the mean key go (KeyDiff, Park et al. 2025, arXiv:2504.15364)", "", false,
         &made_of<drop_likest>},
    };
    return all;
}

std::shared_ptr<EvictionPolicy> make_policy(const CacheEvictionConfig& config) {
    if (config.custom_policy) return config.custom_policy;
    const std::string name = config.policy_name();
    for (const EvictionPolicyKind& kind : eviction_policies())
        if (name == kind.name) return kind.make(config);
    refuse_argument(ParameterName("policy"), " is '", name, "', which is none of pagewheel's");
}

}  // namespace pagewheel
