// Which sequences compute which tokens next.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/block_store.hpp"
#include "cache/cache_size.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "scheduling/sequence.hpp"

namespace pagewheel {

/// Counts of all sequences since the beginning.
struct SchedulerTotals {
    size_t num_preemptions = 0;
    size_t num_prompt_tokens = 0;  ///< of admitted prompts
    size_t num_prefix_hits = 0;    ///< of them, those found in the prefix tree
    size_t num_evicted = 0;        ///< tokens that drop_blocks() was given
};

/// Sequences at the moment.
struct SchedulerQueues {
    size_t num_running = 0;
    size_t num_waiting = 0;    ///< preempted ones among them
    size_t num_preempted = 0;  ///< suspended ones, too
};

/// Blocks at the moment: used + cached + free = all.
struct BlockUsage {
    size_t num_used = 0;    ///< held by sequences
    size_t num_cached = 0;  ///< held by none, kept for prefixes
    size_t num_free = 0;
    size_t num_in_tree = 0;  ///< used and cached ones
    size_t num_checkpoints = 0;
};

/// Continuous batching: every step takes the decodes of all running sequences, then chunks of
/// prompts with what is left of the token budget, then admits waiting sequences; each in the order
/// of their ranks: the step in which they came, a level of priority counting as aging_steps
/// steps. A prompt longer than what is left of the budget leaves half of it to the next one; one of
/// higher priority takes the place of running sequences of lower. What they begin with is looked up
/// in the prefix tree; where another sequence is about to compute it, they wait for that one.
///
/// Where a decode needs a block and none is available, the running sequence that ranks last is
/// preempted: its blocks go to the tree or back, it waits, and what the tree has lost of it is
/// computed again later. The caller sees to it that a sequence alone always fits the pool
/// (max_tokens()), so the one that ranks first always proceeds.
class Scheduler {
public:
    /// `blocks_per_state`: BlockStore. `longest_decode`: tokens of a decode that is alone in its
    /// batch; jump-forward tokens are cut there, since tokens of longer spans have other bits.
    Scheduler(const SchedulerConfig& config, size_t num_blocks, size_t block_size,
              size_t blocks_per_state = 0,
              size_t longest_decode = std::numeric_limits<size_t>::max());

    /// The sequence, which must outlive its removal, waits from now on.
    void add(Sequence& sequence);
    /// `child` runs with the blocks of `parent`, if that is running, else it waits; it must begin
    /// with what its parent has cached.
    void fork(const Sequence& parent, Sequence& child);
    /// An idle sequence got a token: if it was preempted it waits from now on, not before.
    void resume(Sequence& sequence);
    /// Forgets the sequence; its blocks go to the prefix tree or back.
    void remove(Sequence& sequence);
    /// Forgets it where what the latest batch was to write cannot be trusted: nothing of that
    /// enters the tree.
    void discard(Sequence& sequence);

    /// Valid until the next call. Empty only if there are no sequences, or pending grammars keep
    /// the rest from going on.
    const Batch& schedule();
    /// The batch's keys, values and states are in the cache. Drafts enter the tree when they are
    /// confirmed.
    void advance();
    /// The last `count` tokens of what is cached were not confirmed; their slots are free again.
    /// The sequence has no drafts any more. A state that has seen such tokens is thrown away, and
    /// the confirmed ones are computed again after the state of before.
    void rollback(Sequence& sequence, size_t count);

    /// Evicts `num_slots` slots of a running sequence, and the entries of its block table that the
    /// others do not need; `indices` ascend. What the sequence computes from now on depends on that
    /// and enters the tree no more, nor does an entry that own_block() was asked for.
    void drop_blocks(Sequence& sequence, const std::vector<size_t>& indices, size_t num_slots);

    PrefixPins& pins() { return m_pins; }
    /// Forgets all prefixes but pinned ones; running sequences keep their blocks.
    void clear_prefixes(const std::optional<std::set<std::string>>& salts = std::nullopt);

    /// Makes sure that nobody but the running sequence reads an entry of its block table, which is
    /// about to be overwritten: if it is shared or in the prefix tree, another block takes its
    /// place, and the caller copies. Where no block is available others are preempted, those that
    /// rank last first; if the sequence is the last itself, it is preempted and the answer false.
    bool own_block(Sequence& sequence, size_t entry, std::optional<BlockCopy>& copy);
    /// Gives back the memory of free blocks and states where it is worth it: most of what was taken
    /// before is free, and it is much; or states and blocks together cost more than the budget.
    void give_back_unused(BlockMemory& memory);

    /// The tokens that one sequence may have.
    size_t max_tokens() const {
        return (m_store.pool().size() - m_pins.num_blocks() - m_store.blocks_per_state()) *
               m_block_size;
    }
    SchedulerQueues queues() const {
        return {m_running.size(), m_waiting.size() + m_num_following, m_num_preempted};
    }
    const SchedulerTotals& totals() const { return m_totals; }
    BlockUsage usage() const;
    BlockStore& store() { return m_store; }
    const BlockPool& pool() const { return m_store.pool(); }
    size_t block_size() const { return m_block_size; }

private:
    struct ByRank {
        bool operator()(const Sequence* a, const Sequence* b) const {
            return a->rank != b->rank ? a->rank < b->rank : a->number < b->number;
        }
    };
    using Queue = std::set<Sequence*, ByRank>;

    void make_room_for_priority();
    void schedule_decodes();
    void schedule_chunks();
    void admit();
    /// Hands out what is left when all had their turn: to drafts, and to chunks that left tokens
    /// for others. It is worth no preemption.
    void lengthen();
    /// The one place that changes a sequence's stage, and with it the queues and counts.
    void move(Sequence& sequence, Sequence::Stage to);
    void append_entry(Sequence& sequence, size_t num_tokens);
    void set_length(BatchEntry& entry, size_t num_tokens) const;
    /// Prompt tokens to compute now of `uncached` beside `slots` in the cache, given what is left
    /// of the budget, and whether `others` want of it; 0: to wait.
    size_t chunk_length(const Sequence& sequence, size_t slots, size_t uncached, bool others) const;
    /// Serves a prompt that is not to be split and has no room: if decodes alone are in its way,
    /// the next step begins with prompts.
    void ask_for_a_step();
    /// What chunk_length() would be with room for all.
    size_t longest_chunk(const Sequence& sequence, size_t slots, size_t uncached) const;
    /// How many blocks are still missing until the sequence's prompt is computed.
    size_t blocks_to_prompt_end(const Sequence& sequence) const;
    /// How many tokens at its beginning the tree may provide.
    size_t max_prefix(const Sequence& sequence) const;
    size_t blocks_for(size_t num_slots) const {
        return pagewheel::blocks_for(num_slots, m_block_size);
    }
    /// Blocks that are missing to hold `num_tokens` more tokens, one to copy a shared one and those
    /// of a state included.
    size_t missing_blocks(const Sequence& sequence, size_t num_tokens) const;
    bool writes_shared_block(const Sequence& sequence) const;
    /// Whether computing so many tokens takes a state that the sequence does not have: it has none,
    /// shares its own, or may have to go back to it.
    bool needs_state(const Sequence& sequence, size_t num_tokens) const;
    void take_state(Sequence& sequence, size_t num_tokens);
    void take_blocks(Sequence& sequence, size_t num_tokens);
    void release_blocks(Sequence& sequence);
    /// Takes all blocks of the sequence, and moves it to another stage.
    void give_up_cache(Sequence& sequence, Sequence::Stage to);
    void preempt_last();
    /// Nothing that runs has anything to compute, and some of it waits for its grammar.
    bool waits_for_grammar() const;
    /// Preempts the last of several, as one alone has all it needs, or of idle ones, which stand in
    /// the way.
    void preempt_for_blocks();

    // ---- Prefixes (prefix_sharing.cpp)
    void find_prefix(const Sequence& sequence);
    bool follow_another(Sequence& sequence);
    /// Where `leader` leaves a checkpoint for one that shares `common` tokens with it, if need be
    /// by a shorter chunk in the step being scheduled; 0: nowhere.
    size_t checkpoint_for(Sequence& leader, size_t common);
    bool has_checkpoints() const { return m_store.max_checkpoints() > 0; }
    /// Chooses where the sequence, which is about to be admitted, leaves checkpoints.
    void plan_checkpoints(Sequence& sequence) const;
    /// Leaves one if there is reason to after what the sequence has computed.
    void leave_checkpoint(Sequence& sequence);
    /// Keeps its state, if what it has computed may enter the tree. See Checkpoints.
    void keep_checkpoint(Sequence& sequence, size_t saves);
    void dismiss_followers(Sequence& leader);
    void unlink_follower(Sequence& sequence);
    void take_prefix(Sequence& sequence);
    /// Tokens, from the first on, whose blocks may enter the tree.
    static size_t num_shareable(const Sequence& sequence);
    /// Puts the sequence's full blocks into the tree. `is_over`: it gives up its cache next.
    void share_blocks(Sequence& sequence, bool is_over = false);
    /// Puts its blocks into the tree, the one that is not full too.
    void share_all(Sequence& sequence, bool is_over = false);

    SchedulerConfig m_config;
    const size_t m_longest_decode;
    BlockStore m_store;
    PrefixPins m_pins;
    PrefixMatch m_match;        // of the sequence that is being admitted
    uint64_t m_blocked = 0;     // number of the waiting sequence that did not fit; admit() ends
    size_t m_blocked_room = 0;  // at it until more blocks than these are free and not promised
    uint64_t m_next_number = 1;
    SchedulerTotals m_totals;
    size_t m_num_following = 0;
    size_t m_num_preempted = 0;  // waiting again
    // What every step reads, side by side.
    size_t m_block_size;
    Queue m_running;
    Queue m_prefilling;  // of the running
    Queue m_waiting;     // without those that follow another
    Batch m_batch;
    size_t m_budget = 0;          // tokens left in the step being scheduled
    size_t m_num_decodes = 0;     // in the step being scheduled
    bool m_prompt_waits = false;  // the next step leaves decodes out
    uint64_t m_step = 0;
};

}  // namespace pagewheel
