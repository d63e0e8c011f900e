// Keys that are like the others go.
#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

void drop_likest(const EvictionView& view, size_t count, std::vector<size_t>& dropped) {
    std::vector<double> value = likeness_to_mean_key(view, 0, view.num_tokens);
    for (double& v : value) v = -v;
    drop_least(view, sum_by_unit(view, value), count, dropped);
}

}  // namespace

EvictionPolicyKind key_diff_policy() {
    return {"key_diff",
            "keys closest to the mean key go (KeyDiff, Park et al. 2025, arXiv:2504.15364)", "",
            false, &made_of<drop_likest>};
}

}  // namespace pagewheel
