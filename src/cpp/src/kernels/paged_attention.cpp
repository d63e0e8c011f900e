// Divides attention into tiles for all threads and merges what they return.
#include "kernels/paged_attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <vector>

#include "check.hpp"
#include "kernels/paged_attention_prefill.hpp"
#include "kernels/paged_attention_tile.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

constexpr size_t max_tile_rows = 48;  // a tile's queries and logits stay in the L2 cache

// A part of a tile reads at least this much of the cache: its queries are made ready anew.
constexpr size_t min_part_bytes = 20 * 1024;

// Threads take about four parts each, so that none waits long for another's last one, but only two
// where these would be smaller than this: what a thread reads first, it waits for.
constexpr size_t min_quarter_bytes = 192 * 1024;

// A call that reads less does not wake threads, which takes as long: those that are there help.
constexpr size_t min_call_bytes = 64 * 1024;

constexpr size_t write_tokens = 8;  // written by one item

struct alignas(64) CacheLine {
    float floats[16];
};

/// Memory of one thread, which grows to the largest use and stays.
class Arena {
public:
    /// At least `count` floats, 64-byte aligned; what was there before is lost.
    float* floats(size_t count) {
        if (lines_.size() * 16 < count) lines_.resize((count + 15) / 16);
        return lines_.empty() ? nullptr : lines_.front().floats;
    }

private:
    std::vector<CacheLine> lines_;
};

/// A tile whole, or cut along the keys into parts [part_begin, part_end) of Plan::parts.
struct PlannedTile {
    AttentionTile tile;
    size_t part_begin, part_end;
};

/// Everything a call knows beyond its arguments. One per thread that calls, reused.
struct Plan {
    std::vector<PlannedTile> tiles;
    std::vector<AttentionTile> parts;
    std::vector<size_t> item_begins;   // parts [i, i + 1) are one thread's
    std::vector<size_t> part_tile;     // of a part, its tile
    std::vector<size_t> part_floats;   // where a part's result starts; only of tiles with several
    std::vector<size_t> part_kept;     // where its probabilities start, or not_kept
    std::vector<size_t> score_begins;  // [B]: first score of a sequence
    std::vector<size_t> statistics_begins;  // [B]: its first row in statistics
    std::vector<AttentionTile> score_tiles;
    std::vector<RowStatistics> statistics;  // [kv_heads, window, ratio] per sequence with scores
    Arena partials, kept;

    static constexpr size_t not_kept = SIZE_MAX;
};

class Call {
public:
    Call(const AttentionConfig& config, const AttentionBatch& batch,
         const AttentionVariant& variant, const PrefillVariant& prefill, Plan& plan)
        : config_(config),
          layout_(config.layout),
          batch_(batch),
          variant_(variant),
          prefill_(prefill),
          plan_(plan) {
        ratio_ = config.heads / layout_.kv_heads;
        threads_ = static_cast<size_t>(tbb::this_task_arena::max_concurrency());
    }

    /// `write` is called with every new token's sequence and row before anything is read.
    template <class Write>
    void run(const Write& write) {
        plan_scores();
        plan_tiles();
        const size_t parts = plan_.parts.size(), items = plan_.item_begins.size() - 1;
        for (size_t i = 0; i + 1 < parts; ++i) plan_.parts[i].next = &plan_.parts[i + 1];
        const bool cut = parts > plan_.tiles.size();
        const size_t fresh = config_.write_kv_cache ? begin(batch_.num_sequences) : 0;
        const size_t writes = (fresh + write_tokens - 1) / write_tokens;
        const size_t scores = plan_.score_tiles.size();
        const auto run_item = [&](size_t i) {
            fetch_first_span(plan_.parts[plan_.item_begins[i]]);
            for (size_t p = plan_.item_begins[i]; p < plan_.item_begins[i + 1]; ++p) run_part(p);
        };
        const auto write_item = [&](size_t i) {
            write_range(write, i * write_tokens, std::min(fresh, (i + 1) * write_tokens));
        };
        const auto score_cut_part = [&](size_t i) {
            if (!is_whole(i)) score_part(i);
        };
        if (!cut && (threads_ == 1 || std::max({items, writes, scores}) <= 1)) {
            for (size_t i = 0; i < writes; ++i) write_item(i);
            for (size_t i = 0; i < items; ++i) run_item(i);
            for (size_t i = 0; i < scores; ++i) run_scores(i);
            return;
        }
        const bool large = bytes_ >= min_call_bytes || writes > 1;
        run_phases_with(
            large ? threads_ - 1 : 0, Phase{writes, guarded(write_item)},
            Phase{items, guarded(run_item)},
            Phase{cut ? plan_.tiles.size() : 0, guarded([&](size_t i) { merge_parts(i); })},
            Phase{cut && keeps_ ? parts : 0, guarded(score_cut_part)},
            Phase{scores, guarded([&](size_t i) { run_scores(i); })});
        if (error_) std::rethrow_exception(error_);
    }

private:
    size_t begin(size_t s) const { return static_cast<size_t>(batch_.subsequence_begins[s]); }
    size_t past(size_t s) const { return static_cast<size_t>(batch_.past_lens[s]); }
    size_t context(size_t s) const { return past(s) + begin(s + 1) - begin(s); }
    size_t position(size_t s, size_t token) const { return past(s) + token - begin(s); }

    /// The body with its first exception kept: memory can run out, and a Phase must not throw.
    template <class Body>
    auto guarded(const Body& body) {
        return [this, body](size_t i) {
            try {
                body(i);
            } catch (...) {
                if (!failed_.exchange(true)) error_ = std::current_exception();
            }
        };
    }

    /// Writes rows [first, last) of the new tokens.
    template <class Write>
    void write_range(const Write& write, size_t first, size_t last) const {
        const int32_t *begins = batch_.subsequence_begins, *end = begins + batch_.num_sequences;
        auto s = size_t(std::upper_bound(begins, end, int32_t(first)) - begins) - 1;
        for (size_t t = first; t < last; ++t) {
            while (begin(s + 1) <= t) ++s;
            write(layout_, batch_, s, t);
        }
    }

    /// New tokens at the sequence's end whose probabilities are asked for.
    size_t window(size_t s) const {
        if (!batch_.scores || !batch_.score_windows) return 0;
        const auto wanted = static_cast<size_t>(std::max(batch_.score_windows[s], 0));
        return std::min(wanted, begin(s + 1) - begin(s));
    }

    /// Kv heads in a tile of that many new tokens. All heads of a block lie one after another, so
    /// they are read together where they are few rows.
    size_t heads_together(size_t tokens) const {
        if (tokens > 1 && tokens * ratio_ >= prefill_min_rows) return 1;
        return std::max<size_t>(1, std::min(layout_.kv_heads, 64 / (tokens * ratio_)));
    }

    /// Whether the sequence's scores come from the probabilities of its only new token, which are
    /// kept, instead of a second pass over the keys.
    bool keeps(size_t s) const {
        return window(s) > 0 && begin(s + 1) - begin(s) == 1 &&
               heads_together(1) == layout_.kv_heads;
    }

    /// The blocks that tokens [token_begin, token_end) see.
    AttentionTile tile_of(size_t s, size_t kv_head, size_t kv_heads, size_t token_begin,
                          size_t token_end) const {
        const size_t first = position(s, token_begin), window = config_.sliding_window;
        const size_t lowest = window && first + 1 > window ? first + 1 - window : 0;
        return {s,
                kv_head,
                token_begin,
                token_end,
                lowest / layout_.block_size,
                position(s, token_end - 1) / layout_.block_size + 1,
                kv_heads};
    }

    // A row costs about as much per block as reading a quarter of the block does.
    size_t cost(const AttentionTile& tile) const {
        return (tile.block_end - tile.block_begin) * tile.kv_heads * (4 + tile.rows(ratio_));
    }

    /// Of the cache, that the tile reads.
    size_t bytes_of(const AttentionTile& tile) const {
        return (tile.block_end - tile.block_begin) * tile.kv_heads *
               (layout_.key_head_bytes() + layout_.value_head_bytes());
    }

    /// Prompt chunks are cut into tiles of equal sizes.
    size_t tile_tokens(size_t s) const {
        const size_t fresh = begin(s + 1) - begin(s);
        const bool many = fresh * ratio_ >= prefill_min_rows;
        const size_t most =
            std::max<size_t>(1, (many ? prefill_tile_rows : max_tile_rows) / ratio_);
        const size_t tiles = (fresh + most - 1) / most;
        return tiles ? (fresh + tiles - 1) / tiles : 1;
    }

    /// Into how many about equal parts the call is divided.
    size_t num_shares() const {
        return std::min(4 * threads_, std::max(2 * threads_, bytes_ / min_quarter_bytes));
    }

    void plan_tiles() {
        plan_.tiles.clear();
        plan_.parts.clear();
        plan_.part_tile.clear();
        plan_.part_floats.clear();
        plan_.part_kept.clear();
        size_t total = 0;
        for (size_t s = 0; s < batch_.num_sequences; ++s) total += add_tiles(s);
        size_t floats = 0, kept = 0;
        for (size_t i = 0; i < plan_.tiles.size(); ++i) cut(i, total, floats, kept);
        plan_.partials.floats(floats);
        plan_.kept.floats(kept);
        keeps_ = kept > 0;
        plan_items(total);
    }

    /// Puts parts together that one thread takes: it fetches the next while it computes one.
    void plan_items(size_t total) {
        const size_t share = total / num_shares();
        plan_.item_begins.assign(1, 0);
        size_t sum = 0;
        for (size_t i = 0; i < plan_.parts.size(); ++i) {
            sum += cost(plan_.parts[i]);
            if (sum < share && i + 1 < plan_.parts.size()) continue;
            plan_.item_begins.push_back(i + 1);
            sum = 0;
        }
    }

    /// Those of sequence s, the longest first; returns their cost.
    size_t add_tiles(size_t s) {
        const size_t tokens = tile_tokens(s);
        size_t total = 0;
        for (size_t t = begin(s + 1); t > begin(s);) {
            const size_t end = t;
            t -= std::min(tokens, t - begin(s));
            const size_t heads = heads_together(end - t);
            for (size_t h = 0; h < layout_.kv_heads; h += heads) {
                const AttentionTile tile =
                    tile_of(s, h, std::min(heads, layout_.kv_heads - h), t, end);
                plan_.tiles.push_back({tile, 0, 0});
                total += cost(tile);
                bytes_ += bytes_of(tile);
            }
        }
        return total;
    }

    /// Cuts tile i along its keys where it is more than its share of `total`.
    void cut(size_t i, size_t total, size_t& floats, size_t& kept) {
        PlannedTile& planned = plan_.tiles[i];
        const AttentionTile& tile = planned.tile;
        const size_t blocks = tile.block_end - tile.block_begin;
        const size_t share = std::max<size_t>(1, total / num_shares());
        const size_t most = std::max<size_t>(1, bytes_of(tile) / min_part_bytes);
        size_t parts =
            threads_ == 1 ? 1 : std::min((cost(tile) + share - 1) / share, std::min(most, blocks));
        const size_t length = (blocks + parts - 1) / parts;
        parts = (blocks + length - 1) / length;
        planned.part_begin = plan_.parts.size();
        planned.part_end = planned.part_begin + parts;
        for (size_t p = 0; p < parts; ++p) {
            AttentionTile part = tile;
            part.block_begin += p * length;
            part.block_end = std::min(part.block_begin + length, tile.block_end);
            plan_.parts.push_back(part);
            plan_.part_tile.push_back(i);
            plan_.part_floats.push_back(floats);
            if (parts > 1) floats += result_floats(tile);
            const bool keep = keeps(tile.sequence);
            plan_.part_kept.push_back(keep ? kept : Plan::not_kept);
            if (keep) kept += kept_floats(part);
        }
    }

    void plan_scores() {
        plan_.score_tiles.clear();
        plan_.score_begins.clear();
        plan_.statistics_begins.clear();
        if (!batch_.scores || !batch_.score_windows) return;
        size_t scores = 0, rows = 0;
        const size_t blocks = std::max<size_t>(1, 512 / layout_.block_size);
        for (size_t s = 0; s < batch_.num_sequences; ++s) {
            plan_.score_begins.push_back(scores);
            plan_.statistics_begins.push_back(rows);
            scores += context(s);
            rows += window(s) * config_.heads;
            if (window(s) == 0 || keeps(s)) continue;
            const AttentionTile all =
                tile_of(s, 0, layout_.kv_heads, begin(s + 1) - window(s), begin(s + 1));
            for (size_t b = all.block_begin; b < all.block_end; b += blocks) {
                AttentionTile tile = all;
                tile.block_begin = b;
                tile.block_end = std::min(b + blocks, all.block_end);
                plan_.score_tiles.push_back(tile);
            }
        }
        plan_.statistics.resize(rows);
        std::fill_n(batch_.scores, scores, 0.0f);
    }

    // ---- results

    size_t all_rows(const AttentionTile& tile) const { return tile.kv_heads * tile.rows(ratio_); }

    size_t result_floats(const AttentionTile& tile) const {
        const size_t rows = all_rows(tile);
        return rows * padded(layout_.value_size) + 2 * padded(rows);
    }
    TileResult result_at(float* p, const AttentionTile& tile) const {
        const size_t rows = all_rows(tile);
        float* maximum = p + rows * padded(layout_.value_size);
        return {p, maximum, maximum + padded(rows)};
    }

    size_t kept_floats(const AttentionTile& part) const {
        const size_t blocks = part.block_end - part.block_begin;
        const size_t spans = blocks / span_blocks(layout_.block_size) + 1;
        return all_rows(part) * (blocks * layout_.block_size + spans * 16);
    }

    /// Whether part i is all of its tile.
    bool is_whole(size_t i) const {
        const PlannedTile& planned = plan_.tiles[plan_.part_tile[i]];
        return planned.part_end - planned.part_begin == 1;
    }

    /// What a kernel reads first, which no tile before it fetches.
    void fetch_first_span(const AttentionTile& part) const {
        const auto fetch = [](const uint8_t* p, size_t bytes) {
            for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
        };
        const size_t key_bytes = layout_.key_head_bytes(), value_bytes = layout_.value_head_bytes();
        const auto first = static_cast<size_t>(batch_.block_indices_begins[part.sequence]);
        for (size_t b = part.block_begin;
             b < std::min(part.block_end, part.block_begin + span_blocks(layout_.block_size));
             ++b) {
            const auto block = static_cast<size_t>(batch_.block_indices[first + b]);
            const size_t head = block * layout_.kv_heads + part.kv_head;
            fetch(batch_.key_blocks + head * key_bytes, part.kv_heads * key_bytes);
            fetch(batch_.value_blocks + head * value_bytes, part.kv_heads * value_bytes);
        }
    }

    void run_part(size_t i) {
        static thread_local Arena arena;
        const PlannedTile& planned = plan_.tiles[plan_.part_tile[i]];
        const AttentionTile& part = plan_.parts[i];
        const bool whole = is_whole(i);
        const size_t floats = padded(result_floats(part));
        const size_t tokens = part.token_end - part.token_begin;
        const bool many = tokens > 1 && part.rows(ratio_) >= prefill_min_rows;
        const size_t scratch_floats =
            many ? prefill_.scratch_floats(config_, part.rows(ratio_))
                 : variant_.scratch_floats(config_, part.rows(ratio_), part.kv_heads);
        float* scratch = arena.floats(floats + scratch_floats);
        TileResult result =
            result_at(whole ? scratch : plan_.partials.floats(0) + plan_.part_floats[i], part);
        if (plan_.part_kept[i] != Plan::not_kept)
            result.kept = plan_.kept.floats(0) + plan_.part_kept[i];
        (many ? prefill_.attend : variant_.attend)(config_, batch_, part, result, scratch + floats);
        if (whole) {
            finish(planned.tile, result);
            score_part(i);
        }
    }

    /// Adds up a part's kept probabilities once its rows' statistics are known.
    void score_part(size_t i) {
        if (plan_.part_kept[i] == Plan::not_kept) return;
        const AttentionTile& part = plan_.parts[i];
        const size_t s = part.sequence, first = part.block_begin * layout_.block_size;
        const size_t keys = std::min(part.block_end * layout_.block_size, context(s)) - first;
        variant_.sum_kept(config_, part, keys, plan_.kept.floats(0) + plan_.part_kept[i],
                          statistics(s, part.kv_head),
                          batch_.scores + plan_.score_begins[s] + first);
    }

    /// Brings the parts of a tile to one maximum and adds them up.
    void merge_parts(size_t i) {
        const PlannedTile& planned = plan_.tiles[i];
        if (planned.part_end - planned.part_begin == 1) return;
        const size_t rows = all_rows(planned.tile), width = padded(layout_.value_size);
        const auto part = [&](size_t p) {
            return result_at(plan_.partials.floats(0) + plan_.part_floats[p], planned.tile);
        };
        const TileResult into = part(planned.part_begin);
        for (size_t p = planned.part_begin + 1; p < planned.part_end; ++p) {
            const TileResult from = part(p);
            for (size_t r = 0; r < rows; ++r) {
                const float maximum = std::max(into.maximum[r], from.maximum[r]);
                const float a = std::exp(into.maximum[r] - maximum);
                const float b = std::exp(from.maximum[r] - maximum);
                for (size_t d = 0; d < width; ++d)
                    into.acc[r * width + d] =
                        a * into.acc[r * width + d] + b * from.acc[r * width + d];
                into.sum[r] = a * into.sum[r] + b * from.sum[r];
                into.maximum[r] = maximum;
            }
        }
        finish(planned.tile, into);
    }

    /// Divides, with the sinks, into the output; keeps the statistics of rows with scores.
    void finish(const AttentionTile& tile, const TileResult& result) {
        const size_t size = layout_.value_size, width = padded(size);
        const size_t rows = tile.rows(ratio_);
        for (size_t r = 0; r < tile.kv_heads * rows; ++r) {
            const size_t kv_head = tile.kv_head + r / rows;
            const size_t token = tile.token_begin + r % rows / ratio_;
            const size_t head = kv_head * ratio_ + r % ratio_;
            float maximum = result.maximum[r], factor = 1, sum = result.sum[r];
            if (batch_.sinks) {
                maximum = std::max(maximum, batch_.sinks[head]);
                factor = std::exp(result.maximum[r] - maximum);
                sum = sum * factor + std::exp(batch_.sinks[head] - maximum);
            }
            float* out = batch_.output + (token * config_.heads + head) * size;
            for (size_t d = 0; d < size; ++d) out[d] = result.acc[r * width + d] * (factor / sum);
            keep_statistics(tile.sequence, kv_head, token, r % ratio_, {maximum, 1 / sum});
        }
    }

    // ---- scores

    /// Of the sequence's kv head, the rows of the last window(s) tokens [window, ratio].
    RowStatistics* statistics(size_t s, size_t kv_head) {
        return plan_.statistics.data() + plan_.statistics_begins[s] + kv_head * window(s) * ratio_;
    }

    void keep_statistics(size_t s, size_t kv_head, size_t token, size_t row_of_token,
                         RowStatistics row) {
        const size_t first = begin(s + 1) - window(s);
        if (token >= first) statistics(s, kv_head)[(token - first) * ratio_ + row_of_token] = row;
    }

    /// All heads' and rows' probabilities of the keys in score tile i, which no other tile touches.
    void run_scores(size_t i) {
        static thread_local Arena arena;
        const AttentionTile& keys = plan_.score_tiles[i];
        const size_t s = keys.sequence, tokens = std::max<size_t>(1, max_tile_rows / ratio_);
        for (size_t h = 0; h < layout_.kv_heads; ++h)
            for (size_t t = keys.token_begin; t < keys.token_end; t += tokens) {
                AttentionTile tile = tile_of(s, h, 1, t, std::min(t + tokens, keys.token_end));
                tile.block_begin = keys.block_begin;
                tile.block_end = std::min(keys.block_end, tile.block_end);
                if (tile.block_begin >= tile.block_end) continue;
                float* scratch =
                    arena.floats(variant_.scratch_floats(config_, tile.rows(ratio_), 1));
                variant_.score(
                    config_, batch_, tile, statistics(s, h) + (t - keys.token_begin) * ratio_,
                    batch_.scores + plan_.score_begins[s] + tile.block_begin * layout_.block_size,
                    scratch);
            }
    }

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch& batch_;
    const AttentionVariant& variant_;
    const PrefillVariant& prefill_;
    Plan& plan_;
    size_t ratio_, threads_;
    size_t bytes_ = 0;    // of the cache that the tiles read
    bool keeps_ = false;  // whether some part keeps its probabilities
    std::atomic<bool> failed_{false};
    std::exception_ptr error_;
};

const AttentionVariant* variant_of(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx512) return &attention_avx512();
    if (isa == Isa::avx2) return &attention_avx2();
#endif
    (void)isa;
    return nullptr;
}

const PrefillVariant* prefill_of(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::avx512) return &prefill_avx512();
    if (isa == Isa::avx2) return &prefill_avx2();
#endif
    (void)isa;
    return nullptr;
}

void check(const AttentionConfig& config, const AttentionBatch& batch) {
    const CacheLayout& layout = config.layout;
    layout.check();
    check_argument(config.heads > 0 && config.heads % layout.kv_heads == 0, "heads ", config.heads,
                   ": must be a multiple of the kv heads, ", layout.kv_heads);
    check_argument(config.rotary_dims % 2 == 0 && config.rotary_dims <= layout.key_size,
                   "rotary dims ", config.rotary_dims, ": must be even and at most the key size, ",
                   layout.key_size);
    if (batch.num_rotated > 0)
        check_argument(batch.delta_width == 1 || batch.delta_width == layout.block_size,
                       "rotation deltas have width ", batch.delta_width, ": must be 1 or ",
                       layout.block_size);
}

}  // namespace

void write_keys_values(const CacheLayout& layout, const AttentionBatch& batch, Isa isa) {
    const AttentionVariant* variant = variant_of(isa);
    const auto write = variant ? variant->write : write_token_reference;
    for (size_t s = 0, t = 0; s < batch.num_sequences; ++s)
        for (; t < static_cast<size_t>(batch.subsequence_begins[s + 1]); ++t)
            write(layout, batch, s, t);
}

void paged_attention(const AttentionConfig& config, const AttentionBatch& batch, Isa isa) {
    check(config, batch);
    const AttentionVariant* variant = variant_of(isa);
    if (!variant) {
        if (config.write_kv_cache) write_keys_values(config.layout, batch, isa);
        return paged_attention_reference(config, batch);
    }
    // This thread's, which waits for its team and starts no other call meanwhile.
    static thread_local Plan plan;
    Call(config, batch, *variant, *prefill_of(isa), plan).run(variant->write);
}

}  // namespace pagewheel::kernels
