#include "eviction/slot_table.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pagewheel {

namespace {

std::vector<float> mean_of(const std::vector<double>& sums, size_t count) {
    std::vector<float> mean(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) mean[i] = float(sums[i] / double(count));
    return mean;
}

}  // namespace

void QueryStatistics::add(const std::vector<float>& query, size_t head_size, size_t rotary_dims) {
    const size_t half = rotary_dims / 2;
    sum.resize(query.size());
    sum_amplitudes.resize(query.size() / head_size * half);
    for (size_t i = 0; i < query.size(); ++i) sum[i] += query[i];
    auto amplitude = sum_amplitudes.begin();
    for (size_t head = 0; head < query.size(); head += head_size)
        for (size_t i = 0; i < half; ++i)
            *amplitude++ += std::hypot(query[head + i], query[head + half + i]);
    ++count;
}

std::vector<float> QueryStatistics::mean_query() const {
    return mean_of(sum, count);
}

std::vector<float> QueryStatistics::mean_amplitude() const {
    return mean_of(sum_amplitudes, count);
}

std::vector<BlockId> SlotTable::table(const std::vector<BlockId>& blocks) const {
    std::vector<BlockId> table(blocks.size());
    for (size_t i = 0; i < table.size(); ++i) table[i] = blocks[entry(i)];
    return table;
}

std::vector<int32_t> SlotTable::lifetimes() const {
    std::vector<int32_t> lifetimes(unseen_by.size(), num_queries);
    for (size_t i = 0; i < lifetimes.size(); ++i) lifetimes[i] -= unseen_by[i];
    return lifetimes;
}

void SlotTable::extend(size_t held, size_t num_evicted, size_t shift) {
    const size_t known = position.size();
    if (held <= known) return;
    position.resize(held);
    read_at.resize(held);
    const size_t next = known + num_evicted;
    std::iota(position.begin() + ptrdiff_t(known), position.end(), int64_t(next));
    std::iota(read_at.begin() + ptrdiff_t(known), read_at.end(), int64_t(next - shift));
    delta.resize(held, 0);
    score.resize(held, 0);
    unseen_by.resize(held, num_queries);
}

void SlotTable::observe(const float* scores, size_t held, size_t window) {
    for (size_t i = 0; i < held; ++i) score[i] += scores[i];
    num_queries += int32_t(window);
    // Slot held - window + i is the i-th query's own.
    for (size_t i = 0; i < window; ++i) unseen_by[held - window + i] += int32_t(i);
}

void SlotTable::forget_scores() {
    std::fill(score.begin(), score.end(), 0.0f);
    std::fill(unseen_by.begin(), unseen_by.end(), 0);
    num_queries = 0;
    queries = {};
}

void SlotTable::compact(const std::vector<size_t>& dropped) {
    size_t to = 0;
    auto next = dropped.begin();
    for (size_t from = 0; from < position.size(); ++from) {
        if (next != dropped.end() && *next == from) {
            ++next;
            continue;
        }
        position[to] = position[from];
        read_at[to] = read_at[from];
        delta[to] = delta[from];
        score[to] = score[from];
        unseen_by[to] = unseen_by[from];
        ++to;
    }
    position.resize(to);
    read_at.resize(to);
    delta.resize(to);
    score.resize(to);
    unseen_by.resize(to);
}

void SlotTable::close_positions() {
    for (size_t slot = 0; slot < read_at.size(); ++slot) {
        delta[slot] += int32_t(read_at[slot] - int64_t(slot));
        read_at[slot] = int64_t(slot);
    }
}

void SlotTable::describe_rotation(size_t block_size) {
    rotated.clear();
    deltas.clear();
    per_token = false;
    const size_t held = delta.size(), blocks = (held + block_size - 1) / block_size;
    for (size_t b = 0; b < blocks; ++b) {
        const auto first = delta.begin() + ptrdiff_t(b * block_size);
        const auto last = delta.begin() + ptrdiff_t(std::min(held, (b + 1) * block_size));
        if (std::all_of(first, last, [](int32_t d) { return d == 0; })) continue;
        rotated.push_back(int32_t(b));
        // Tokens to come have delta 0, so a block that is not full is mixed as well.
        const bool full = size_t(last - first) == block_size;
        per_token |= !full || std::any_of(first, last, [&](int32_t d) { return d != *first; });
    }
    for (int32_t b : rotated)
        for (size_t i = 0; i < (per_token ? block_size : 1); ++i) {
            const size_t slot = size_t(b) * block_size + i;
            deltas.push_back(slot < held ? delta[slot] : 0);
        }
}

int32_t SlotTable::largest_delta() const {
    return delta.empty() ? 0 : *std::max_element(delta.begin(), delta.end());
}

}  // namespace pagewheel
