#include "kernels/attention/plan.hpp"

namespace pagewheel::kernels {
namespace {

// A part of a tile reads at least this much of the cache: its queries are made ready anew.
constexpr size_t min_part_bytes = 20 * 1024;

// Threads take about four parts each, so that none waits long for another's last one, but only two
// where these would be smaller than this: what a thread reads first, it waits for.
constexpr size_t min_quarter_bytes = 192 * 1024;

// Tokens of a part where tiles are cut at fixed ones.
constexpr size_t fixed_part_tokens = 512;

// So many for each thread, and their parts need not be divided.
constexpr size_t min_tiles_of_a_thread = 4;

class Planner {
public:
    Planner(const AttentionConfig& config, const AttentionBatch& batch, size_t threads,
            size_t prefill_rows, AttentionPlan& plan)
        : config_(config),
          layout_(config.layout),
          batch_(batch),
          tokens_{batch.tables},
          ratio_(config.heads / config.layout.kv_heads),
          threads_(threads),
          short_span_(is_short_span()),
          prefill_rows_(std::max(prefill_tile_rows, std::min(prefill_rows, rows_of_a_thread()))),
          plan_(plan) {}

    void plan_tiles() {
        plan_.tiles.clear();
        plan_.parts.clear();
        plan_.cache_bytes = plan_.result_floats = plan_.kept_floats = 0;
        for (size_t s = 0; s < batch_.tables.num_sequences(); ++s) add_tiles(s);
        plan_.parts_one_by_one =
            config_.batch_invariant && plan_.tiles.size() >= min_tiles_of_a_thread * threads_;
        const size_t cost = total_cost_, bytes = plan_.cache_bytes;
        for (size_t i = 0; i < plan_.tiles.size(); ++i) {
            if (short_span_) count_token(plan_.tiles[i].tile.token_begin);
            cut(i);
        }
        total_cost_ = cost;
        plan_.cache_bytes = bytes;
        for (size_t i = 0; i + 1 < plan_.parts.size(); ++i)
            plan_.parts[i].tile.next = &plan_.parts[i + 1].tile;
        plan_items();
    }

    void plan_scores() {
        plan_.score_tiles.clear();
        plan_.score_begins.clear();
        plan_.statistics_begins.clear();
        plan_.num_scores = plan_.num_statistics = 0;
        if (!batch_.tables.has_scores()) return;
        for (size_t s = 0; s < batch_.tables.num_sequences(); ++s) {
            plan_.score_begins.push_back(plan_.num_scores);
            plan_.statistics_begins.push_back(plan_.num_statistics);
            plan_.num_scores += tokens_.context(s);
            plan_.num_statistics += tokens_.scored(s) * config_.heads;
            if (tokens_.scored(s) > 0 && !keeps(s)) add_score_tiles(s);
        }
    }

private:
    /// Kv heads in a tile of that many new tokens. All heads of a block lie one after another, so
    /// they are read together where they are few rows.
    size_t heads_together(size_t tokens) const {
        if (tokens > 1 && tokens * ratio_ >= prefill_min_rows) return 1;
        return std::max<size_t>(1, std::min(layout_.kv_heads, 64 / (tokens * ratio_)));
    }

    /// Whether the sequence's scores come from the probabilities of its only new token, which are
    /// kept, instead of a second pass over the keys.
    bool keeps(size_t s) const {
        return tokens_.scored(s) > 0 && tokens_.fresh(s) == 1 &&
               heads_together(1) == layout_.kv_heads;
    }

    /// A decode with drafts alone in its call: each of its queries is computed as it would be
    /// without the others, to the bit.
    bool is_short_span() const {
        return batch_.tables.num_sequences() == 1 && tokens_.fresh(0) > 1 &&
               tokens_.fresh(0) <= short_span_tokens && tokens_.past(0) > 0;
    }

    /// Makes the call's totals, by which tiles are cut, those of one token's tiles.
    void count_token(size_t token) {
        total_cost_ = plan_.cache_bytes = 0;
        for (const PlannedTile& each : plan_.tiles)
            if (each.tile.token_begin == token) {
                total_cost_ += cost(each.tile);
                plan_.cache_bytes += bytes_of(each.tile);
            }
    }

    // A row costs about as much per block as reading a quarter of the block does.
    size_t cost(const AttentionTile& tile) const {
        return (tile.block_end - tile.block_begin) * tile.kv_heads * (4 + tile.rows(ratio_));
    }

    /// What the tile reads of the cache.
    size_t bytes_of(const AttentionTile& tile) const {
        return (tile.block_end - tile.block_begin) * tile.kv_heads *
               (layout_.key_head_bytes() + layout_.value_head_bytes());
    }

    /// Half of a thread's part of all rows, so that large tiles occupy every thread.
    size_t rows_of_a_thread() const {
        const size_t sequences = batch_.tables.num_sequences();
        return sequences ? tokens_.end(sequences - 1) * config_.heads / (2 * threads_) : 0;
    }

    /// Prefill chunks are cut into tiles of equal sizes.
    size_t tile_tokens(size_t s) const {
        if (config_.batch_invariant || short_span_) return 1;
        const size_t fresh = tokens_.fresh(s);
        const bool many = fresh * ratio_ >= prefill_min_rows;
        const size_t most = std::max<size_t>(1, (many ? prefill_rows_ : max_tile_rows) / ratio_);
        const size_t tiles = (fresh + most - 1) / most;
        return tiles ? (fresh + tiles - 1) / tiles : 1;
    }

    /// Into how many about equal parts the call is divided.
    size_t wanted_items() const {
        return std::min(4 * threads_,
                        std::max(2 * threads_, plan_.cache_bytes / min_quarter_bytes));
    }

    /// Adds the tiles of sequence s, the longest first.
    void add_tiles(size_t s) {
        const size_t tokens = tile_tokens(s);
        for (size_t t = tokens_.end(s); t > tokens_.begin(s);) {
            const size_t end = t;
            t -= std::min(tokens, t - tokens_.begin(s));
            const size_t heads = heads_together(end - t);
            for (size_t h = 0; h < layout_.kv_heads; h += heads) {
                const AttentionTile tile =
                    tile_of(config_, batch_, s, h, std::min(heads, layout_.kv_heads - h), t, end);
                plan_.tiles.push_back({tile, 0, 0});
                plan_.cache_bytes += bytes_of(tile);
                total_cost_ += cost(tile);
            }
        }
    }

    /// Blocks of a part: the tile's, or about a work item's.
    size_t part_blocks(const AttentionTile& tile) const {
        const size_t blocks = tile.block_end - tile.block_begin;
        const size_t item_cost = std::max<size_t>(1, total_cost_ / wanted_items());
        const size_t most = std::max<size_t>(1, bytes_of(tile) / min_part_bytes);
        const size_t parts = threads_ == 1 ? 1
                                           : std::min((cost(tile) + item_cost - 1) / item_cost,
                                                      std::min(most, blocks));
        return (blocks + parts - 1) / parts;
    }

    /// Cuts tile i along its keys where it is more than a work item, or at fixed tokens.
    void cut(size_t i) {
        PlannedTile& planned = plan_.tiles[i];
        const AttentionTile& tile = planned.tile;
        const bool fixed = config_.batch_invariant;
        const size_t length =
            fixed ? std::max<size_t>(1, fixed_part_tokens / layout_.block_size) : part_blocks(tile);
        // Fixed parts begin at multiples of their length, whatever the first block is.
        const size_t origin = fixed ? tile.block_begin / length * length : tile.block_begin;
        const size_t parts = (tile.block_end - origin + length - 1) / length;
        planned.part_begin = plan_.parts.size();
        planned.part_end = planned.part_begin + parts;
        for (size_t p = 0; p < parts; ++p) {
            TilePart part{tile, i, plan_.result_floats, TilePart::not_kept};
            part.tile.block_begin = std::max(tile.block_begin, origin + p * length);
            part.tile.block_end = std::min(origin + (p + 1) * length, tile.block_end);
            if (parts > 1 && !plan_.parts_one_by_one)
                plan_.result_floats += result_floats(all_rows(tile, ratio_), layout_.value_size);
            if (keeps(tile.sequence)) {
                part.kept = plan_.kept_floats;
                plan_.kept_floats += kept_floats(part.tile);
            }
            plan_.parts.push_back(part);
        }
    }

    size_t kept_floats(const AttentionTile& part) const {
        const size_t blocks = part.block_end - part.block_begin;
        const size_t spans = blocks / span_blocks(layout_.block_size) + 1;
        return all_rows(part, ratio_) * (blocks * layout_.block_size + spans * 16);
    }

    /// Puts parts together that one thread takes: it fetches the next while it computes one. A part
    /// of many rows is computed much longer than it is fetched and is taken alone, so that threads
    /// end together.
    void plan_items() {
        const size_t item_cost = total_cost_ / wanted_items();
        plan_.item_begins.assign(1, 0);
        size_t sum = 0;
        for (size_t i = 0; i < plan_.parts.size(); ++i) {
            sum += cost(plan_.parts[i].tile);
            const bool last = i + 1 == plan_.parts.size();
            const bool tile_goes_on =
                plan_.parts_one_by_one && !last && plan_.parts[i + 1].of == plan_.parts[i].of;
            const bool alone = has_many_rows(plan_.parts[i].tile, ratio_);
            if (tile_goes_on || (sum < item_cost && !last && !alone)) continue;
            plan_.item_begins.push_back(i + 1);
            sum = 0;
        }
    }

    void add_score_tiles(size_t s) {
        const size_t blocks = std::max<size_t>(1, 512 / layout_.block_size), end = tokens_.end(s);
        const AttentionTile all =
            tile_of(config_, batch_, s, 0, layout_.kv_heads, end - tokens_.scored(s), end);
        for (size_t b = all.block_begin; b < all.block_end; b += blocks) {
            AttentionTile tile = all;
            tile.block_begin = b;
            tile.block_end = std::min(b + blocks, all.block_end);
            plan_.score_tiles.push_back(tile);
        }
    }

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch& batch_;
    const BatchTokens tokens_;
    const size_t ratio_, threads_;
    const bool short_span_;
    const size_t prefill_rows_;  // of a tile at most
    AttentionPlan& plan_;
    size_t total_cost_ = 0;
};

}  // namespace

AttentionTile tile_of(const AttentionConfig& config, const AttentionBatch& batch, size_t sequence,
                      size_t kv_head, size_t kv_heads, size_t token_begin, size_t token_end) {
    const BatchTokens tokens{batch.tables};
    const size_t block_size = config.layout.block_size, window = config.sliding_window;
    const size_t first = tokens.position(sequence, token_begin);
    const size_t lowest = window && first + 1 > window ? first + 1 - window : 0;
    return {sequence,
            kv_head,
            token_begin,
            token_end,
            lowest / block_size,
            tokens.position(sequence, token_end - 1) / block_size + 1,
            kv_heads};
}

size_t result_floats(size_t rows, size_t value_size) {
    return rows * padded(value_size) + 2 * padded(rows);
}

TileResult result_in(float* memory, size_t rows, size_t value_size) {
    float* maximum = memory + rows * padded(value_size);
    return {memory, maximum, maximum + padded(rows)};
}

void AttentionPlan::make(const AttentionConfig& config, const AttentionBatch& batch, size_t threads,
                         size_t prefill_rows) {
    Planner planner(config, batch, threads, prefill_rows, *this);
    planner.plan_scores();
    planner.plan_tiles();
}

}  // namespace pagewheel::kernels
