// Runs the parts of a call on all threads and merges what they return.
#include "kernels/paged_attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/plan.hpp"
#include "kernels/kernels.hpp"
#include "kernels/line_buffer.hpp"
#include "kernels/team.hpp"

namespace pagewheel::kernels {
namespace {

// A call that reads less does not wake threads, which takes as long: those that are there help.
constexpr size_t min_call_bytes = 64 * 1024;

constexpr size_t write_tokens = 8;  // written by one item

/// What a call keeps from one phase to another. One per thread that calls, reused.
struct CallMemory {
    AttentionPlan plan;
    std::vector<std::atomic<size_t>> unfinished;  // by tile: parts
    std::vector<const void*> computed_by;   // by part of a cut tile with scores: see this_thread()
    std::vector<RowStatistics> statistics;  // see AttentionPlan::statistics()
    LineBuffer<float> partials, kept;
};

/// An address that no other living thread has.
const void* this_thread() {
    static thread_local const char mark = 0;
    return &mark;
}

/// Tokens whose keys and values a layer writes that has a cache.
size_t num_written(const BatchTables& tables) {
    return static_cast<size_t>(tables.written_begins[tables.num_sequences()]);
}

class Call {
public:
    Call(const AttentionConfig& config, const AttentionBatch& batch,
         const AttentionKernels& kernels, CallMemory& memory)
        : config_(config),
          layout_(config.layout),
          batch_(batch),
          tokens_{batch.tables},
          decode_(kernels.decode(config.layout.format)),
          prefill_(kernels.prefill_for(config)),
          memory_(memory),
          plan_(memory.plan),
          ratio_(config.heads / config.layout.kv_heads),
          threads_(num_threads()) {
        memory.plan.make(config, batch, threads_, prefill_.tile_rows);
        memory.statistics.resize(plan_.num_statistics);
        if (memory.unfinished.size() < plan_.tiles.size())
            memory.unfinished = std::vector<std::atomic<size_t>>(plan_.tiles.size());
        for (size_t i = 0; i < plan_.tiles.size(); ++i)
            memory.unfinished[i].store(plan_.tiles[i].parts(), std::memory_order_relaxed);
        const bool keeps_parts = plan_.cuts_tiles() && plan_.kept_floats > 0;
        memory.computed_by.assign(keeps_parts ? plan_.parts.size() : 0, nullptr);
        partials_ = memory.partials.resize(plan_.result_floats);
        kept_ = memory.kept.resize(plan_.kept_floats);
    }

    /// Writes every new token's keys and values before anything is read.
    void run() {
        std::fill_n(batch_.tables.scores.values, plan_.num_scores, 0.0f);
        const size_t items = plan_.num_items(), scores = plan_.score_tiles.size();
        const size_t fresh = config_.write_kv_cache ? num_written(batch_.tables) : 0;
        const size_t writes = (fresh + write_tokens - 1) / write_tokens;
        const auto write_item = [&](size_t i) {
            write_range(i * write_tokens, std::min(fresh, (i + 1) * write_tokens));
        };
        if (threads_ == 1 || std::max({items, writes, scores}) <= 1) {
            for (size_t i = 0; i < writes; ++i) write_item(i);
            for (size_t i = 0; i < items; ++i) run_item(i);
            score_own_parts();
            for (size_t i = 0; i < scores; ++i) run_scores(i);
            return;
        }
        const bool large = plan_.cache_bytes >= min_call_bytes || writes > 1;
        run_phases_with(large ? threads_ - 1 : 0, Phase{writes, write_item},
                        Phase{items, [&](size_t i) { run_item(i); }},
                        EachThread{[&] { score_own_parts(); }},
                        Phase{scores, [&](size_t i) { run_scores(i); }});
    }

private:
    /// Writes rows [first, last) of the new tokens.
    void write_range(size_t first, size_t last) const {
        const int32_t* begins = batch_.tables.written_begins.values;
        const int32_t* end = begins + batch_.tables.num_sequences();
        auto s = size_t(std::upper_bound(begins, end, int32_t(first)) - begins) - 1;
        for (size_t t = first, next; t < last; t = next) {
            while (size_t(begins[s + 1]) <= t) ++s;
            next = std::min(last, size_t(begins[s + 1]));
            decode_.write(layout_, batch_, s, t, next);
        }
    }

    // ---- attention

    void run_item(size_t i) {
        const size_t first = plan_.item_begins[i], last = plan_.item_begins[i + 1];
        fetch_first_span(plan_.parts[first].tile);
        if (plan_.parts_one_by_one)
            return run_tiles(plan_.parts[first].of, plan_.parts[last - 1].of);
        for (size_t p = first; p < last; ++p) run_part(p);
    }

    /// What a kernel reads first, which no tile before it fetches.
    void fetch_first_span(const AttentionTile& part) const {
        const auto fetch = [](const uint8_t* p, size_t bytes) {
            for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
        };
        const size_t key_bytes = layout_.key_head_bytes(), value_bytes = layout_.value_head_bytes();
        const auto first = static_cast<size_t>(batch_.tables.block_indices_begins[part.sequence]);
        for (size_t b = part.block_begin;
             b < std::min(part.block_end, part.block_begin + span_blocks(layout_.block_size));
             ++b) {
            const auto block = static_cast<size_t>(batch_.tables.block_indices[first + b]);
            const size_t head = block * layout_.kv_heads + part.kv_head;
            fetch(batch_.key_blocks + head * key_bytes, part.kv_heads * key_bytes);
            fetch(batch_.value_blocks + head * value_bytes, part.kv_heads * value_bytes);
        }
    }

    void run_part(size_t p) {
        static thread_local LineBuffer<float> memory;
        const TilePart& part = plan_.parts[p];
        const AttentionTile& tile = part.tile;
        const PlannedTile& planned = plan_.tiles[part.of];
        const bool whole = planned.is_whole(), many = has_many_rows(tile, ratio_);
        const size_t rows = tile.rows(ratio_);
        const size_t floats = padded(result_floats(all_rows(tile, ratio_), layout_.value_size));
        float* own =
            memory.resize(floats + (many ? prefill_.scratch_floats(config_, rows)
                                         : decode_.scratch_floats(config_, rows, tile.kv_heads)));
        TileResult result = whole ? result_in(own, all_rows(tile, ratio_), layout_.value_size)
                                  : partial_result(part);
        result.kept = kept(part);
        (many ? prefill_.attend : decode_.attend)(config_, batch_, tile, result, own + floats);
        if (whole) {
            finish(planned.tile, result);
            return score_part(part);
        }
        if (!memory_.computed_by.empty()) memory_.computed_by[p] = this_thread();
        if (memory_.unfinished[part.of].fetch_sub(1, std::memory_order_acq_rel) == 1)
            merge_parts(planned);
    }

    /// Tiles [first, last] of one token each, their parts in turn.
    void run_tiles(size_t first, size_t last) {
        static thread_local LineBuffer<float> memory;
        for (size_t i = first; i <= last; ++i) {
            const PlannedTile& planned = plan_.tiles[i];
            const AttentionTile& tile = planned.tile;
            const size_t rows = all_rows(tile, ratio_), size = layout_.value_size;
            const size_t floats = padded(result_floats(rows, size));
            float* own = memory.resize(
                2 * floats + decode_.scratch_floats(config_, tile.rows(ratio_), tile.kv_heads));
            const TileResult into = result_in(own, rows, size);
            for (size_t p = planned.part_begin; p < planned.part_end; ++p) {
                const bool first_part = p == planned.part_begin;
                TileResult result = first_part ? into : result_in(own + floats, rows, size);
                result.kept = kept(plan_.parts[p]);
                decode_.attend(config_, batch_, plan_.parts[p].tile, result, own + 2 * floats);
                if (!first_part) merge(into, result, rows);
            }
            finish(tile, into);
            for (size_t p = planned.part_begin; p < planned.part_end; ++p)
                score_part(plan_.parts[p]);
        }
    }

    // ---- results

    TileResult partial_result(const TilePart& part) const {
        return result_in(partials_ + part.result, all_rows(part.tile, ratio_), layout_.value_size);
    }

    /// Where the part's probabilities are kept, or null.
    float* kept(const TilePart& part) const {
        return part.kept == TilePart::not_kept ? nullptr : kept_ + part.kept;
    }

    /// Adds up the parts of a tile, in their order, once all are computed.
    void merge_parts(const PlannedTile& planned) {
        const TileResult into = partial_result(plan_.parts[planned.part_begin]);
        for (size_t p = planned.part_begin + 1; p < planned.part_end; ++p)
            merge(into, partial_result(plan_.parts[p]), all_rows(planned.tile, ratio_));
        finish(planned.tile, into);
    }

    /// Brings two parts to one maximum and adds one to the other.
    void merge(const TileResult& into, const TileResult& from, size_t rows) const {
        const size_t width = padded(layout_.value_size);
        for (size_t r = 0; r < rows; ++r) {
            const float maximum = std::max(into.maximum[r], from.maximum[r]);
            const float a = std::exp(into.maximum[r] - maximum);
            const float b = std::exp(from.maximum[r] - maximum);
            for (size_t d = 0; d < width; ++d)
                into.acc[r * width + d] = a * into.acc[r * width + d] + b * from.acc[r * width + d];
            into.sum[r] = a * into.sum[r] + b * from.sum[r];
            into.maximum[r] = maximum;
        }
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
            // Fetches the row of a later token, because the output lies in memory.
            for (size_t d = 0; d < size; d += 16)
                __builtin_prefetch(out + 2 * config_.heads * size + d, 1);
            for (size_t d = 0; d < size; ++d) out[d] = result.acc[r * width + d] * (factor / sum);
            keep_statistics(tile.sequence, kv_head, token, r % ratio_, {maximum, 1 / sum});
        }
    }

    // ---- scores

    /// The statistics of the sequence's kv head: rows of the last scored(s) tokens [scored, ratio].
    RowStatistics* statistics(size_t s, size_t kv_head) const {
        return memory_.statistics.data() + plan_.statistics(s, kv_head, tokens_.scored(s), ratio_);
    }

    void keep_statistics(size_t s, size_t kv_head, size_t token, size_t row_of_token,
                         RowStatistics row) {
        const size_t first = tokens_.end(s) - tokens_.scored(s);
        if (token >= first) statistics(s, kv_head)[(token - first) * ratio_ + row_of_token] = row;
    }

    /// Adds up a part's kept probabilities once its rows' statistics are known.
    void score_part(const TilePart& part) {
        const float* probabilities = kept(part);
        if (!probabilities) return;
        const AttentionTile& tile = part.tile;
        const size_t s = tile.sequence, first = tile.block_begin * layout_.block_size;
        const size_t end = std::min(tile.block_end * layout_.block_size, tokens_.context(s));
        decode_.sum_kept(config_, tile, end - first, probabilities, statistics(s, tile.kv_head),
                         batch_.tables.scores.values + plan_.score_begins[s] + first);
    }

    /// Once all tiles are finished: each thread adds up what lies in its own core's caches. One
    /// that comes again may do so twice, since sum_kept() overwrites.
    void score_own_parts() {
        for (size_t p = 0; p < memory_.computed_by.size(); ++p)
            if (memory_.computed_by[p] == this_thread()) score_part(plan_.parts[p]);
    }

    /// All heads' and rows' probabilities of the keys in score tile i, which no other tile touches.
    void run_scores(size_t i) {
        static thread_local LineBuffer<float> memory;
        const AttentionTile& keys = plan_.score_tiles[i];
        const size_t s = keys.sequence, tokens = std::max<size_t>(1, max_tile_rows / ratio_);
        for (size_t h = 0; h < layout_.kv_heads; ++h)
            for (size_t t = keys.token_begin; t < keys.token_end; t += tokens) {
                AttentionTile tile =
                    tile_of(config_, batch_, s, h, 1, t, std::min(t + tokens, keys.token_end));
                tile.block_begin = keys.block_begin;
                tile.block_end = std::min(keys.block_end, tile.block_end);
                if (tile.block_begin >= tile.block_end) continue;
                float* scratch =
                    memory.resize(decode_.scratch_floats(config_, tile.rows(ratio_), 1));
                decode_.score(config_, batch_, tile,
                              statistics(s, h) + (t - keys.token_begin) * ratio_,
                              batch_.tables.scores.values + plan_.score_begins[s] +
                                  tile.block_begin * layout_.block_size,
                              scratch);
            }
    }

    const AttentionConfig& config_;
    const CacheLayout& layout_;
    const AttentionBatch& batch_;
    const BatchTokens tokens_;
    const DecodeKernels decode_;
    const PrefillKernels prefill_;
    CallMemory& memory_;
    const AttentionPlan& plan_;
    const size_t ratio_, threads_;
    float *partials_, *kept_;  // of the parts, see TilePart
};

void check(const AttentionConfig& config) {
    const CacheLayout& layout = config.layout;
    layout.check();
    check_argument(config.rotary_dims % 2 == 0 && config.rotary_dims <= layout.key_size,
                   "rotary dims ", config.rotary_dims, ": must be even and at most the key size, ",
                   layout.key_size);
}

}  // namespace

void paged_attention(const AttentionConfig& config, const AttentionBatch& batch, Isa isa) {
    paged_attention(config, batch, isa.kernels().attention);
}

void paged_attention(const AttentionConfig& config, const AttentionBatch& batch,
                     const AttentionKernels& kernels) {
    check(config);
    if (!kernels.has_tiles()) return paged_attention_reference(config, batch);
    // This thread's, which waits for its team and starts no other call meanwhile.
    static thread_local CallMemory memory;
    Call(config, batch, kernels, memory).run();
}

}  // namespace pagewheel::kernels
