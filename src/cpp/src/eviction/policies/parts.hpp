// What the built-in eviction policies are made of.
#pragma once

#include <memory>
#include <vector>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {

/// EvictionPolicyKind::make of a policy that is made of the config.
template <class Policy>
std::shared_ptr<EvictionPolicy> made(const CacheEvictionConfig& config) {
    return std::make_shared<Policy>(config);
}

/// The same of a policy that is a function, which looks at no attention.
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
std::vector<double> scores_of(const EvictionView& view);
/// The same, divided by the number of queries that could see the token.
std::vector<double> scores_by_lifetime(const EvictionView& view);

/// Appends the `count` units of [view.first_unit, view.last_unit) with the least value;
/// value [last_unit - first_unit]. Of equal ones the first.
void drop_least(const EvictionView& view, const std::vector<double>& value, size_t count,
                std::vector<size_t>& dropped);

/// Sum over a unit's tokens of value [num_tokens], for each unit that may go.
std::vector<double> sum_by_unit(const EvictionView& view, const std::vector<double>& value);

/// For each token, the mean over kv heads of the cosine between its key and the mean direction of
/// the keys of tokens [first, last). [num_tokens]; only tokens that may go are filled.
std::vector<double> likeness_to_mean_key(const EvictionView& view, size_t first, size_t last);

/// The prompt's last snapkv_window_size queries, and all while generating.
ObservedQueries accumulated_queries(const CacheEvictionConfig& config);

}  // namespace pagewheel
