// Scores of TriAttention (Mao et al. 2026, arXiv:2604.04921).
#pragma once

#include <vector>

#include "pagewheel/eviction_policy.hpp"

namespace pagewheel {

/// By token [view.num_tokens], the attention to be expected of queries to come. Before rotation a
/// head's queries lie close to their mean, so a pair of channels adds |mean| |key| cos(angle +
/// frequency * distance), which is averaged over distances to queries 1, 2, 4 ... 65,536 positions
/// ahead, plus (mean length - |mean|) |key| for how far queries stray. Each head's scores are
/// brought to mean 0 and variance 1; the result is their mean, as all heads of a layer share a
/// block table. The view has statistics.
std::vector<double> triattention_scores(const EvictionView& view);

}  // namespace pagewheel
