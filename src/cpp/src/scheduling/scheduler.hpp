// Which sequences compute which tokens next.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "cache/block_pool.hpp"
#include "pagewheel/scheduler_config.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// Continuous batching: every step takes the decodes of all running sequences, oldest first, then
/// chunks of prompts with what is left of the token budget, then admits waiting sequences in the
/// order they came.
///
/// Where a decode needs a block and none is free, the youngest running sequence is preempted: its
/// blocks go back, it waits at the front, and its tokens are computed again later. The caller sees
/// to it that a sequence alone always fits the pool (max_tokens()), so the oldest always proceeds.
class Scheduler {
public:
    Scheduler(const SchedulerConfig& config, size_t num_blocks, size_t block_size);

    /// The sequence, which must outlive its removal, waits from now on.
    void add(Sequence& sequence);
    /// `child` runs with the blocks of `parent`, which is running; it must have the same tokens
    /// cached.
    void fork(const Sequence& parent, Sequence& child);
    /// Gives back the sequence's blocks and forgets it.
    void remove(Sequence& sequence);

    /// Valid until the next call. Empty only if there are no sequences. The caller adds num_tokens
    /// to each num_cached when the step is done.
    const Batch& schedule();

    size_t max_tokens() const { return m_pool.size() * m_block_size; }
    size_t num_sequences() const { return m_running.size() + m_waiting.size(); }
    size_t num_preemptions() const { return m_num_preemptions; }
    const BlockPool& pool() const { return m_pool; }

private:
    void schedule_decodes();
    void schedule_chunks();
    void admit();
    void append_entry(Sequence& sequence, size_t num_tokens);
    /// Prompt tokens to compute now, given what is left of the budget; 0 if it is to wait.
    size_t chunk_length(const Sequence& sequence) const;
    /// Blocks that are missing to hold `num_tokens` more tokens, one to copy a shared one included.
    size_t missing_blocks(const Sequence& sequence, size_t num_tokens) const;
    bool writes_shared_block(const Sequence& sequence) const;
    void take_blocks(Sequence& sequence, size_t num_tokens);
    void release_blocks(Sequence& sequence);
    void preempt_youngest();

    SchedulerConfig m_config;
    size_t m_block_size;
    BlockPool m_pool;
    std::vector<Sequence*> m_running;  // oldest first
    std::deque<Sequence*> m_waiting;   // next first
    Batch m_batch;
    size_t m_budget = 0;  // tokens left in the step being scheduled
    size_t m_num_preemptions = 0;
};

}  // namespace pagewheel
