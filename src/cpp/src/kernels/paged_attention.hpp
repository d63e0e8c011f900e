// Attention of ragged batches over a paged cache, rotated at read. What is where:
//
//   cache_layout, cache_formats  how keys and values lie in a block, and what an element of each
//                                format is
//   batch_tables                 what tells sequences, blocks, rotation and scores apart
//   paged_attention.cpp          a call: writes, attends, merges parts, scores
//   attention/plan               a call divided into tiles and parts for all threads
//   attention/tile.hpp           what a kernel is given and gives back
//   attention/write.hpp          writing new tokens
//   attention/decode_*           tiles of few rows. kernel: softmax, the product with the values,
//                                scores; logits: queries x keys and which side is rotated; float:
//                                the blocks at hand and the arithmetic in f32
//   attention/prefill_*          tiles of many rows. kernel: softmax; float: the products in f32 of
//                                blocks as floats
//   isa/avx2, isa/avx512         the same with an instruction set's vectors, and arithmetic that it
//                                alone has: integers for u8 and u4, bf16
//   isa/amx                      prefill_tiles
//   isa/scalar/attention.cpp     all of it as it is defined
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/batch_tables.hpp"
#include "kernels/cache_layout.hpp"
#include "kernels/isa.hpp"

namespace pagewheel::kernels {

/// The longest span of a sequence that is alone in its call whose queries have the bits that they
/// have in calls of their own.
constexpr size_t short_span_tokens = 16;

/// What is the same for every call of one layer.
struct AttentionConfig {
    CacheLayout layout;
    size_t heads = 1;  // a multiple of layout.kv_heads; head h reads kv head h / (heads / kv_heads)
    float scale = 1;
    float soft_cap = 0;         // 0: none; else a logit x becomes soft_cap * tanh(x / soft_cap)
    size_t sliding_window = 0;  // 0: none; else a query at i sees the keys j with i - j < window
    size_t rotary_dims = 0;     // the first dimensions of a head that are rotated; even
    bool interleaved = false;   // pairs (2i, 2i + 1) instead of (i, i + rotary_dims / 2)
    bool write_kv_cache = true;

    // Prefill chunks may multiply numbers rounded to bf16, probabilities too, and sum in f32: over
    // a bf16 cache with AVX512_BF16, over every one but f32 with AMX. Else f32 arithmetic, or
    // integers.
    bool bf16_products = true;

    // A query's result is the same to the bit whatever else the call holds, on any number of
    // threads, however the prompt was cut into prefill chunks: each query has a tile of its own,
    // which is cut at fixed tokens. Long prompts take several times as long.
    bool batch_invariant = false;
};

/// One call. Views; the caller owns everything and has checked the tables (the kernels trust them).
struct AttentionBatch {
    const float* query = nullptr;  // [queries, heads * key_size]
    const float* key = nullptr;    // [tokens, kv_heads * key_size]; unused without write_kv_cache
    const float* value = nullptr;  // [tokens, kv_heads * value_size]; the same
    float* output = nullptr;       // [queries, heads * value_size]

    // Pool bases; block b starts at b * key_block_bytes(). All writes of a call come before its
    // reads, so a sequence may share a block that another one of the batch fills.
    uint8_t* key_blocks = nullptr;
    uint8_t* value_blocks = nullptr;

    BatchTables tables;

    const float* sinks = nullptr;  // [heads] or null: one more logit in the denominator
    const float* alibi_slopes =
        nullptr;  // [heads] or null: logit += slope * (key - query position)
};

/// Writes the new tokens' keys and values to the cache (config.write_kv_cache), then each query
/// attends causally to its sequence's context. Runs in the calling thread's TBB arena. Memory it
/// needs is kept per thread and reused. What an input that is not finite gives is unspecified, but
/// it stays within its sequence.
void paged_attention(const AttentionConfig& config, const AttentionBatch& batch, Isa isa);

}  // namespace pagewheel::kernels
