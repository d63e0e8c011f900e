// The longest keys go.
#include <cmath>
#include <numeric>

#include "eviction/policies/parts.hpp"

namespace pagewheel {
namespace {

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

}  // namespace

EvictionPolicyKind key_norm_policy() {
    return {"key_norm", "keys of the greatest L2 norm go (Devoto et al. 2024, arXiv:2406.11430)",
            "", false, &made_of<drop_longest>};
}

}  // namespace pagewheel
