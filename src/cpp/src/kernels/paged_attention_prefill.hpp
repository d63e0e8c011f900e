// Attention of tiles with many rows, the prompt chunks: a block's keys and values are made ready
// once for all rows, where paged_attention_kernel.hpp reads them as they lie for a few. Internal to
// the kernels.
#pragma once

#include "kernels/paged_attention_tile.hpp"

namespace pagewheel::kernels {

/// What AttentionVariant's calls of the same names do, for at least prefill_min_rows rows.
struct PrefillVariant {
    size_t (*scratch_floats)(const AttentionConfig&, size_t rows);
    void (*attend)(const AttentionConfig&, const AttentionBatch&, const AttentionTile&,
                   const TileResult&, float* scratch);
};

const PrefillVariant& prefill_avx2();
const PrefillVariant& prefill_avx512();

constexpr size_t prefill_min_rows = 24;
constexpr size_t prefill_tile_rows = 96;  // accumulators and queries stay in the L2 cache

}  // namespace pagewheel::kernels
