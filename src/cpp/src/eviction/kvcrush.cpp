// KVCrush's representatives of blocks that few queries look at.
#include <algorithm>
#include <numeric>
#include <random>

#include "eviction/policies.hpp"

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

}  // namespace

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

}  // namespace pagewheel
