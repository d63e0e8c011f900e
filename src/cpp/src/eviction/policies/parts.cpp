#include "eviction/policies/parts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "check.hpp"

namespace pagewheel {

std::vector<double> scores_of(const EvictionView& view) {
    return {view.scores, view.scores + view.num_tokens};
}

std::vector<double> scores_by_lifetime(const EvictionView& view) {
    std::vector<double> values(view.num_tokens);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = double(view.scores[i]) / std::max(view.lifetimes[i], 1);
    return values;
}

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

ObservedQueries accumulated_queries(const CacheEvictionConfig& config) {
    const size_t window = config.snapkv_window_size;
    return {window ? window : ObservedQueries::all, ObservedQueries::all, true};
}

}  // namespace pagewheel
