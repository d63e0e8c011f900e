// Policies that keep the tokens which received the most attention.
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

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

}  // namespace

EvictionPolicyKind sum_policy() {
    return {"sum", "least attention goes (H2O, Zhang et al. 2023, arXiv:2306.14048)",
            "snapkv_window_size", true, &make_accumulated<false>};
}

EvictionPolicyKind norm_sum_policy() {
    return {"norm_sum",
            "least attention goes, divided by the number of queries that could see the token",
            "snapkv_window_size", true, &make_accumulated<true>};
}

EvictionPolicyKind snapkv_policy() {
    return {"snapkv",
            "least attention goes, of the last snapkv_window_size queries before each decision "
            "(SnapKV, Li et al. 2024, arXiv:2404.14469)",
            "snapkv_window_size", true, &make_snapkv};
}

EvictionPolicyKind tova_policy() {
    return {"tova",
            "least attention of the last query goes (TOVA, Oren et al. 2024, arXiv:2401.06104)", "",
            true, &make_tova};
}

}  // namespace pagewheel
