// How a call of paged_attention() is divided among threads. Internal to the kernels.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/attention/tile.hpp"

namespace pagewheel::kernels {

/// The tokens of a batch that have queries, sequence by sequence.
struct BatchTokens {
    const BatchTables& tables;

    size_t begin(size_t s) const { return static_cast<size_t>(tables.subsequence_begins[s]); }
    size_t end(size_t s) const { return begin(s + 1); }
    size_t fresh(size_t s) const { return end(s) - begin(s); }
    size_t past(size_t s) const { return static_cast<size_t>(tables.past_lens[s]); }
    size_t context(size_t s) const { return past(s) + fresh(s); }
    size_t position(size_t s, size_t token) const { return past(s) + token - begin(s); }

    /// The tokens at the sequence's end whose probabilities are asked for.
    size_t scored(size_t s) const {
        if (!tables.has_scores()) return 0;
        return std::min(static_cast<size_t>(std::max(tables.score_windows[s], 0)), fresh(s));
    }
};

/// A tile whole, or cut along the keys into parts [part_begin, part_end).
struct PlannedTile {
    AttentionTile tile;
    size_t part_begin, part_end;

    size_t parts() const { return part_end - part_begin; }
    bool is_whole() const { return parts() == 1; }
};

/// What a kernel is called for.
struct TilePart {
    static constexpr size_t not_kept = SIZE_MAX;

    AttentionTile tile;
    size_t of;      // index of the tile it is of
    size_t result;  // floats before its result in the call's memory; only of tiles with several
    size_t kept;    // floats before its probabilities in the call's memory, or not_kept
};

/// Follows from the configuration and the lengths, not from where blocks lie.
struct AttentionPlan {
    std::vector<PlannedTile> tiles;
    std::vector<TilePart> parts;
    std::vector<size_t> item_begins;  // parts [i, i + 1) are one thread's
    size_t result_floats = 0;         // of all parts
    size_t kept_floats = 0;
    size_t cache_bytes = 0;  // that the tiles read
    /// A tile's parts are one thread's, one after the other, and their results are kept nowhere.
    /// For calls with tiles for all threads whose results would take much memory.
    bool parts_one_by_one = false;

    std::vector<AttentionTile> score_tiles;  // of sequences whose scores take a second pass
    std::vector<size_t> score_begins;        // [B]: first score of a sequence; empty without scores
    std::vector<size_t> statistics_begins;   // [B]: its first row, see statistics()
    size_t num_scores = 0, num_statistics = 0;

    /// Replaces what was there, in its memory. Tiles of prefill chunks have at most `prefill_rows`.
    void make(const AttentionConfig& config, const AttentionBatch& batch, size_t threads,
              size_t prefill_rows);

    size_t num_items() const { return item_begins.size() - 1; }
    bool cuts_tiles() const { return !parts_one_by_one && parts.size() > tiles.size(); }

    /// The row of statistics [kv_heads, scored, ratio] of the first of the sequence's last `scored`
    /// tokens and its kv head.
    size_t statistics(size_t s, size_t kv_head, size_t scored, size_t ratio) const {
        return statistics_begins[s] + kv_head * scored * ratio;
    }
};

/// Whether a tile is the prefill kernels'.
inline bool has_many_rows(const AttentionTile& tile, size_t ratio) {
    return tile.token_end - tile.token_begin > 1 && tile.rows(ratio) >= prefill_min_rows;
}

/// The blocks that tokens [token_begin, token_end) of a sequence see, of some kv heads.
AttentionTile tile_of(const AttentionConfig& config, const AttentionBatch& batch, size_t sequence,
                      size_t kv_head, size_t kv_heads, size_t token_begin, size_t token_end);

/// The rows of all kv heads of the tile.
inline size_t all_rows(const AttentionTile& tile, size_t ratio) {
    return tile.kv_heads * tile.rows(ratio);
}

/// A TileResult in `memory`, and how much it takes.
TileResult result_in(float* memory, size_t rows, size_t value_size);
size_t result_floats(size_t rows, size_t value_size);

constexpr size_t max_tile_rows = 48;  // a tile's queries and logits stay in the L2 cache

}  // namespace pagewheel::kernels
