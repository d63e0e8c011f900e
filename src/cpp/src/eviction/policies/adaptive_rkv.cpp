// Attention first, then keys unlike the others.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

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

}  // namespace

EvictionPolicyKind adaptive_rkv_policy() {
    return {"adaptive_rkv",
            "what carries a share of the attention stays, and of the rest the keys least like the "
            "others (after R-KV, Cai et al. 2025, arXiv:2505.24133)",
            "adaptive_rkv_config",
            true,
            &made<AdaptiveRKV>,
            &check_adaptive_rkv};
}

}  // namespace pagewheel
