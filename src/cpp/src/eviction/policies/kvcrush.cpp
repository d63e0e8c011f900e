// KVCrush: of the blocks that few queries look at, representatives stay.
#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.hpp"
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

using Bits = std::vector<bool>;

/// Of each candidate, one bit per token: it is among the `num_set` tokens of most score.
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

EvictionPolicyKind kvcrush_policy() {
    return {"kvcrush",
            "what received most attention stays, and representatives of the rest (KVCrush, Jha et "
            "al. 2025, arXiv:2503.00022)",
            "kvcrush_config, aggregation_mode, snapkv_window_size",
            false,
            &made<KVCrush>,
            &check_kvcrush};
}

}  // namespace pagewheel
