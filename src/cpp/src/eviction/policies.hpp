// What the built-in eviction policies are made of.
#pragma once

#include <memory>
#include <vector>

#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {

/// Appends the `count` units of [view.first_unit, view.last_unit) with the least value;
/// value [last_unit - first_unit]. Of equal ones the first.
void drop_least(const EvictionView& view, const std::vector<double>& value, size_t count,
                std::vector<size_t>& dropped);

/// Sum over a unit's tokens of value [num_tokens], for each unit that may go.
std::vector<double> sum_by_unit(const EvictionView& view, const std::vector<double>& value);

/// For each token, the mean over kv heads of the cosine between its key and the mean direction of
/// the keys of tokens [first, last). [num_tokens]; only tokens that may go are filled.
std::vector<double> likeness_to_mean_key(const EvictionView& view, size_t first, size_t last);

/// KVCrush's choice of representatives among `candidates` (units), `count` of them kept: tokens are
/// bits (1: among the `num_set` tokens of most score), blocks are ordered by the Hamming distance
/// to the anchor, and taken at even steps.
std::vector<size_t> crush_representatives(const EvictionView& view,
                                          const std::vector<size_t>& candidates, size_t count,
                                          size_t num_set, const KVCrushConfig& config);

}  // namespace pagewheel
