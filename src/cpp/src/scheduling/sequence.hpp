// One token stream, and the work of one step on several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/prefix_tree.hpp"

namespace pagewheel {

struct EvictionState;

/// Tokens of a sequence and where their keys and values lie.
///
/// The last num_drafted tokens are guesses that the model is to confirm; those before are
/// committed. Tokens [0, num_cached) were computed. Of their keys and values num_evicted were
/// dropped again (Scheduler::drop_blocks), so that num_slots() are in the cache, in their order:
/// slot i is slot i % block_size of blocks[i / block_size]. A sequence that waits holds no blocks.
/// Owned by its request, which sets what it was submitted with and appends tokens; all else is the
/// scheduler's.
struct Sequence {
    enum class Stage {
        OUTSIDE,     ///< not added, or removed
        WAITING,     ///< to be admitted
        FOLLOWING,   ///< for another to compute what this one begins with
        PREFILLING,  ///< running, not all that it was admitted with is computed: its prompt,
                     ///< after a preemption what it had generated, too
        DECODING,    ///< running, its latest token (and drafts) to be computed
        SUSPENDED,   ///< was preempted while it was idle: it waits from its next token on
    };

    // ---- What every step reads, side by side: a step finds nothing of it in the processor's
    // cache.
    std::vector<int64_t> tokens;  ///< prompt, what was generated, drafts
    size_t num_drafted = 0;
    size_t num_cached = 0;  ///< computed, in the cache or evicted from it
    std::vector<BlockId> blocks;
    size_t num_evicted = 0;  ///< of num_cached, those dropped again
    /// Of layers that keep states: after num_cached tokens, if there are any, and what the step
    /// that is being computed writes, which is the same one if nobody else has it.
    StateId state = no_state, next_state = no_state;
    /// While drafts are computed that may be wrong: the state before them, and after how many
    /// tokens.
    StateId confirmed_state = no_state;
    size_t num_confirmed = 0;
    /// Confirmed tokens that the state has not seen, as drafts after them were wrong: they are
    /// computed again with the next token.
    size_t num_replayed = 0;
    Stage stage = Stage::OUTSIDE;      ///< moved by Scheduler::move() alone
    bool wants_prompt_logits = false;  ///< of every prompt token, not of the last alone
    /// Set by its request while it is idle: it gets a token in time, and nobody need make room for
    /// that.
    bool pending_grammar = false;
    size_t prompt_length = 0;

    // ---- Its part in the prefix tree.
    size_t num_tree_blocks = 0;  ///< full blocks, from the first on, that are the tree's
    /// Tokens from this one on depend on what was evicted before, and enter the tree no more.
    size_t num_shareable = std::numeric_limits<size_t>::max();
    size_t num_prefix_hits = 0;  ///< prompt tokens found in the tree when it was first admitted
    /// Where prefill chunks end because a checkpoint is wanted there, ascending.
    std::vector<size_t> checkpoints;
    size_t last_checkpoint = 0;  ///< tokens up to the last one that it found or left

    // ---- As submitted.
    EvictionState* eviction = nullptr;  ///< the request's; opaque to the scheduler
    int priority = 0;                   ///< higher is served first
    PrefixKey prefix_key;
    /// A prompt's chunk ends where the cache holds so many tokens, because it is evicted then.
    size_t max_chunk_slots = std::numeric_limits<size_t>::max();
    /// The last so many tokens of a prompt, or before max_chunk_slots, are computed though the
    /// prefix tree may have them: their attention is to be observed.
    size_t num_observed = 0;

    // ---- Its place in the scheduler.
    int64_t rank = 0;       ///< less goes first; of equals the lower number
    uint64_t number = 0;    ///< unique, in the order of add() and fork()
    size_t num_starts = 0;  ///< times that it, or the one it was forked from, began with a cache
    Sequence* leader = nullptr;  ///< whom it follows,
    size_t follow_until = 0;     ///< until that one has computed so many tokens,
    size_t follower_index = 0;   ///< as this one of leader->followers
    std::vector<Sequence*> followers;

    size_t num_slots() const { return num_cached - num_evicted; }
    size_t num_uncached() const { return tokens.size() - num_cached; }
    bool is_running() const { return stage == Stage::PREFILLING || stage == Stage::DECODING; }
    bool is_prefilling() const { return stage == Stage::PREFILLING; }
    /// Whether the sequence had a cache and is to have one again.
    bool is_preempted() const { return num_starts > 0 && stage != Stage::OUTSIDE && !is_running(); }
    size_t num_committed() const { return tokens.size() - num_drafted; }
    void drop_drafts() {
        tokens.resize(num_committed());
        num_drafted = 0;
    }
    /// The sequence's logits were given out, and its next token was not chosen yet: it computes
    /// nothing.
    bool is_idle() const { return num_uncached() == 0 || pending_grammar; }
};

/// A span: tokens [sequence->num_cached, + num_tokens) of a sequence, which holds enough blocks for
/// them. A decode is a span of one token, or of more with drafts; a part of a prompt another.
struct BatchEntry {
    Sequence* sequence;
    size_t num_tokens;
    /// How many of them, counted from the last, have logits that are wanted.
    size_t num_logits;
    /// How many of those give a next token: the last committed token's, unless that was computed
    /// before, and the drafts'.
    size_t num_sampled;
    /// Of layers that keep states, where some of the tokens are drafts: how many stand before them.
    /// The sequence's state is written after those, and its next state after all. 0: its state
    /// stays, since others have it, too.
    size_t num_split = 0;

    bool samples() const { return num_sampled > 0; }
};

/// A block to be copied before the step, because its holder is about to write and shares it.
struct BlockCopy {
    BlockId from, to;
};

struct Batch {
    std::vector<BatchEntry> entries;
    std::vector<BlockCopy> copies;
    size_t num_tokens = 0;

    bool empty() const { return entries.empty(); }
    void clear() {
        entries.clear();
        copies.clear();
        num_tokens = 0;
    }
};

}  // namespace pagewheel
