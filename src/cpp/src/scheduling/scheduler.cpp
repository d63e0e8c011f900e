#include "scheduling/scheduler.hpp"

#include <algorithm>

#include "check.hpp"

namespace pagewheel {

Scheduler::Scheduler(const SchedulerConfig& config, size_t num_blocks, size_t block_size)
    : m_config(config), m_block_size(block_size), m_pool(num_blocks) {}

void Scheduler::add(Sequence& sequence) {
    check_invariant(sequence.tokens.size() <= max_tokens() && !sequence.tokens.empty(),
                    "a sequence of ", sequence.tokens.size(), " tokens was added; the pool holds ",
                    max_tokens());
    m_waiting.push_back(&sequence);
}

void Scheduler::fork(const Sequence& parent, Sequence& child) {
    const auto at = std::find(m_running.begin(), m_running.end(), &parent);
    check_invariant(at != m_running.end(), "a sequence was forked that does not run");
    for (BlockId block : parent.blocks) m_pool.share(block);
    child.blocks = parent.blocks;
    child.num_cached = parent.num_cached;
    m_running.insert(at + 1, &child);
}

void Scheduler::remove(Sequence& sequence) {
    release_blocks(sequence);
    const auto erase_from = [&](auto& sequences) {
        sequences.erase(std::remove(sequences.begin(), sequences.end(), &sequence),
                        sequences.end());
    };
    erase_from(m_running);
    erase_from(m_waiting);
}

const Batch& Scheduler::schedule() {
    // An empty batch with sequences running means that chunks of prompts hold all blocks and none
    // can go on: the youngest makes room.
    do {
        m_batch.clear();
        m_budget = m_config.max_num_batched_tokens;
        schedule_decodes();
        schedule_chunks();
        admit();
        if (!m_batch.empty() || m_running.empty()) break;
        preempt_youngest();
    } while (true);
    return m_batch;
}

void Scheduler::schedule_decodes() {
    // The youngest is the last, so what is preempted here was not scheduled before.
    for (size_t i = 0; i < m_running.size(); ++i) {
        Sequence& sequence = *m_running[i];
        if (!sequence.is_decoding()) continue;
        if (m_budget == 0 || m_batch.entries.size() == m_config.max_num_seqs) return;
        while (missing_blocks(sequence, 1) > m_pool.num_free() && m_running.size() > i)
            preempt_youngest();
        if (m_running.size() > i) append_entry(sequence, 1);
    }
}

void Scheduler::schedule_chunks() {
    for (Sequence* sequence : m_running) {
        if (m_budget == 0 || m_batch.entries.size() == m_config.max_num_seqs) return;
        if (sequence->is_decoding()) continue;
        const size_t length = chunk_length(*sequence);
        if (length > 0 && missing_blocks(*sequence, length) <= m_pool.num_free())
            append_entry(*sequence, length);
    }
}

void Scheduler::admit() {
    // Running prompts are to find the blocks they still need.
    size_t promised = 0;
    for (const Sequence* sequence : m_running)
        if (!sequence->is_decoding())
            promised += missing_blocks(*sequence, sequence->num_uncached());

    while (!m_waiting.empty() && m_budget > 0 && m_running.size() < m_config.max_num_seqs) {
        Sequence& sequence = *m_waiting.front();
        const size_t needed = missing_blocks(sequence, sequence.num_uncached());
        const size_t length = chunk_length(sequence);
        if (length == 0 || needed + promised > m_pool.num_free()) return;
        m_waiting.pop_front();
        m_running.push_back(&sequence);
        append_entry(sequence, length);
        promised += missing_blocks(sequence, sequence.num_uncached());
    }
}

size_t Scheduler::chunk_length(const Sequence& sequence) const {
    const size_t length = sequence.num_uncached();
    const bool may_split = m_config.dynamic_split_fuse || length > m_config.max_num_batched_tokens;
    return length <= m_budget ? length : may_split ? m_budget : 0;
}

void Scheduler::append_entry(Sequence& sequence, size_t num_tokens) {
    take_blocks(sequence, num_tokens);
    const bool samples = num_tokens == sequence.num_uncached();
    const bool all = sequence.wants_prompt_logits && sequence.num_cached < sequence.prompt_length;
    m_batch.entries.push_back({&sequence, num_tokens,
                               all       ? num_tokens
                               : samples ? 1u
                                         : 0u,
                               samples});
    m_batch.num_tokens += num_tokens;
    m_budget -= num_tokens;
}

bool Scheduler::writes_shared_block(const Sequence& sequence) const {
    return sequence.num_cached % m_block_size != 0 &&
           m_pool.references(sequence.blocks[sequence.num_cached / m_block_size]) > 1;
}

size_t Scheduler::missing_blocks(const Sequence& sequence, size_t num_tokens) const {
    const size_t needed = (sequence.num_cached + num_tokens + m_block_size - 1) / m_block_size;
    const size_t held = sequence.blocks.size();
    return (needed > held ? needed - held : 0) + (writes_shared_block(sequence) ? 1 : 0);
}

void Scheduler::take_blocks(Sequence& sequence, size_t num_tokens) {
    size_t missing = missing_blocks(sequence, num_tokens);
    if (writes_shared_block(sequence)) {
        BlockId& block = sequence.blocks[sequence.num_cached / m_block_size];
        const BlockId copy = m_pool.take();
        m_batch.copies.push_back({block, copy});
        m_pool.release(block);
        block = copy;
        --missing;
    }
    for (; missing > 0; --missing) sequence.blocks.push_back(m_pool.take());
}

void Scheduler::release_blocks(Sequence& sequence) {
    for (BlockId block : sequence.blocks) m_pool.release(block);
    sequence.blocks.clear();
    sequence.num_cached = 0;
}

void Scheduler::preempt_youngest() {
    check_invariant(m_running.size() > 1 || m_running.front()->blocks.size() < m_pool.size(),
                    "a sequence outgrew the pool");
    Sequence& sequence = *m_running.back();
    m_running.pop_back();
    release_blocks(sequence);
    m_waiting.push_front(&sequence);
    ++m_num_preemptions;
}

}  // namespace pagewheel
