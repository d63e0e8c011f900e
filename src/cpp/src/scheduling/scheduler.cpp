#include "scheduling/scheduler.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.hpp"

namespace pagewheel {

using Stage = Sequence::Stage;

namespace {

// A prompt that exceeds what is left of a step's tokens takes half of it if others wait, down to
// this part of all tokens of a step.
constexpr size_t max_prompt_shares = 4;

constexpr unsigned bit(Stage stage) {
    return 1u << unsigned(stage);
}

/// The stages that may come after one; leaving altogether is always allowed.
unsigned next_stages(Stage stage) {
    switch (stage) {
        case Stage::OUTSIDE:  // running at once: forked from one that runs
            return bit(Stage::WAITING) | bit(Stage::PREFILLING) | bit(Stage::DECODING);
        case Stage::WAITING:
            return bit(Stage::FOLLOWING) | bit(Stage::PREFILLING);
        case Stage::FOLLOWING:
            return bit(Stage::WAITING);
        case Stage::PREFILLING:
            return bit(Stage::DECODING) | bit(Stage::WAITING) | bit(Stage::SUSPENDED);
        case Stage::DECODING:
            return bit(Stage::WAITING) | bit(Stage::SUSPENDED);
        case Stage::SUSPENDED:
            return bit(Stage::WAITING);
    }
    return 0;
}

/// At least one, if any are wanted: without it no prefix would ever be found.
size_t max_checkpoints(const SchedulerConfig& config, size_t num_blocks, size_t blocks_per_state) {
    if (!config.enable_prefix_caching || blocks_per_state == 0 || config.checkpoint_fraction == 0)
        return 0;
    const double num_states = double(num_blocks) / double(blocks_per_state);
    return std::max<size_t>(1, size_t(double(config.checkpoint_fraction) * num_states));
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, size_t num_blocks, size_t block_size,
                     size_t blocks_per_state, size_t longest_decode)
    : m_config(config),
      m_longest_decode(longest_decode),
      m_store(num_blocks, block_size, blocks_per_state,
              max_checkpoints(config, num_blocks, blocks_per_state)),
      m_pins(m_store),
      m_block_size(block_size) {
    check_argument(num_blocks > blocks_per_state, "the cache has ", num_blocks,
                   " blocks; the state of one sequence takes ", blocks_per_state,
                   ", and its tokens at least 1");
    // Without the state behind them keys and values are of no use.
    if (blocks_per_state > 0 && !has_checkpoints()) m_config.enable_prefix_caching = false;
}

void Scheduler::add(Sequence& sequence) {
    check_invariant(std::min(sequence.tokens.size(), sequence.max_chunk_slots) <= max_tokens() &&
                        !sequence.tokens.empty(),
                    "a sequence of ", sequence.tokens.size(), " tokens was added; the pool holds ",
                    max_tokens());
    sequence.rank = int64_t(m_step) - int64_t(sequence.priority) * int64_t(m_config.aging_steps);
    sequence.number = m_next_number++;
    move(sequence, Stage::WAITING);
}

void Scheduler::fork(const Sequence& parent, Sequence& child) {
    // First: where memory is out, none is shared. Blocks that hold nothing yet stay the parent's.
    child.blocks.assign(parent.blocks.begin(),
                        parent.blocks.begin() + ptrdiff_t(blocks_for(parent.num_slots())));
    for (BlockId block : child.blocks) m_store.share(block);
    child.state = parent.state;
    if (child.state != no_state) m_store.share_state(child.state);
    child.num_cached = parent.num_cached;
    child.num_evicted = parent.num_evicted;
    child.num_shareable = parent.num_shareable;
    child.last_checkpoint = parent.last_checkpoint;
    child.num_tree_blocks = parent.num_tree_blocks;
    child.rank = parent.rank;
    child.number = m_next_number++;
    child.num_starts = parent.num_starts;  // so that its prompt is not counted again
    move(child, parent.is_running() ? parent.stage : Stage::WAITING);
}

void Scheduler::resume(Sequence& sequence) {
    if (sequence.stage == Stage::SUSPENDED) move(sequence, Stage::WAITING);
}

void Scheduler::remove(Sequence& sequence) {
    share_all(sequence, /*is_over=*/true);
    keep_checkpoint(sequence, sequence.num_cached - sequence.last_checkpoint);
    discard(sequence);
}

void Scheduler::discard(Sequence& sequence) {
    give_up_cache(sequence, Stage::OUTSIDE);
}

void Scheduler::give_up_cache(Sequence& sequence, Stage to) {
    release_blocks(sequence);
    move(sequence, to);
    dismiss_followers(sequence);
}

void Scheduler::move(Sequence& sequence, Stage to) {
    const Stage from = sequence.stage;
    check_invariant(to == Stage::OUTSIDE || (next_stages(from) & bit(to)) != 0,
                    "a sequence cannot go from stage ", int(from), " to ", int(to));
    const bool was_running = sequence.is_running();
    m_num_preempted -= sequence.is_preempted();
    m_num_following -= from == Stage::FOLLOWING;
    if (from == Stage::WAITING) m_waiting.erase(&sequence);
    if (from == Stage::FOLLOWING) unlink_follower(sequence);
    if (from == Stage::PREFILLING) m_prefilling.erase(&sequence);
    sequence.stage = to;
    if (was_running && !sequence.is_running()) m_running.erase(&sequence);
    if (!was_running && sequence.is_running()) {
        ++sequence.num_starts;
        m_running.insert(&sequence);
    }
    if (to == Stage::WAITING) m_waiting.insert(&sequence);
    if (to == Stage::PREFILLING) m_prefilling.insert(&sequence);
    m_num_following += to == Stage::FOLLOWING;
    m_num_preempted += sequence.is_preempted();
}

const Batch& Scheduler::schedule() {
    // An empty batch with sequences running means that prefill chunks hold all blocks and none
    // can go on: the last makes room.
    ++m_step;
    do {
        const size_t num_preemptions = m_totals.num_preemptions;
        m_batch.clear();
        m_budget = m_config.max_num_batched_tokens;
        make_room_for_priority();
        const bool skips_decodes = std::exchange(m_prompt_waits, false);
        if (!skips_decodes) schedule_decodes();
        m_num_decodes = m_batch.entries.size();
        schedule_chunks();
        admit();
        // No block was free for a prompt: decodes go after all.
        if (skips_decodes && m_batch.empty()) schedule_decodes();
        lengthen();
        if (!m_batch.empty() || m_running.empty() || waits_for_grammar()) break;
        // A decode that found no block has just made room.
        if (m_totals.num_preemptions == num_preemptions) preempt_for_blocks();
    } while (true);
    return m_batch;
}

bool Scheduler::waits_for_grammar() const {
    const auto is_idle = [](const Sequence* sequence) { return sequence->is_idle(); };
    const auto pending_grammar = [](const Sequence* sequence) { return sequence->pending_grammar; };
    return std::all_of(m_running.begin(), m_running.end(), is_idle) &&
           std::any_of(m_running.begin(), m_running.end(), pending_grammar);
}

void Scheduler::schedule_decodes() {
    // The order is that of ranks: what is preempted here was not scheduled before.
    for (auto at = m_running.begin(); at != m_running.end();) {
        Sequence& sequence = **at;
        if (m_budget == 0 || m_batch.entries.size() == m_config.max_num_seqs) return;
        if (sequence.is_prefilling() || sequence.is_idle()) {
            ++at;
            continue;
        }
        const size_t length = std::min(m_budget, sequence.num_replayed + 1);
        while (missing_blocks(sequence, length) > m_store.num_available() && sequence.is_running())
            preempt_for_blocks();
        if (!sequence.is_running()) return;
        append_entry(sequence, length);  // its drafts get what is left: lengthen()
        ++at;
    }
}

void Scheduler::schedule_chunks() {
    for (Sequence* sequence : m_prefilling) {
        if (m_budget == 0 || m_batch.entries.size() == m_config.max_num_seqs) return;
        const bool others = sequence != *m_prefilling.rbegin() || !m_waiting.empty();
        const size_t length =
            chunk_length(*sequence, sequence->num_slots(), sequence->num_uncached(), others);
        if (length == 0) ask_for_a_step();
        if (length > 0 && missing_blocks(*sequence, length) <= m_store.num_available())
            append_entry(*sequence, length);
    }
}

void Scheduler::admit() {
    // Running prompts are to find the blocks they still need.
    size_t promised = 0;
    for (const Sequence* sequence : m_prefilling) promised += blocks_to_prompt_end(*sequence);

    while (!m_waiting.empty() && m_budget > 0 && m_running.size() < m_config.max_num_seqs) {
        Sequence& sequence = **m_waiting.begin();
        // One that did not fit is looked at again when there is more room.
        const size_t room = m_store.num_available() - std::min(promised, m_store.num_available());
        if (m_blocked == sequence.number && room <= m_blocked_room && !m_running.empty()) return;
        find_prefix(sequence);
        if (follow_another(sequence)) continue;
        plan_checkpoints(sequence);
        // Idle blocks that it shares are not available any more. An idle state is, as it may be
        // written if there is no other.
        const size_t revived =
            size_t(std::count_if(m_match.blocks.begin(), m_match.blocks.end(),
                                 [&](BlockId block) { return pool().references(block) == 0; }));
        const size_t needed =
            blocks_for(std::min(sequence.tokens.size(), sequence.max_chunk_slots)) +
            m_store.blocks_per_state() - m_match.blocks.size();
        const size_t length =
            chunk_length(sequence, m_match.num_tokens, sequence.tokens.size() - m_match.num_tokens,
                         m_waiting.size() > 1);
        if (length == 0) {
            ask_for_a_step();
            return;
        }
        if (needed + revived > room) {
            m_blocked = sequence.number;
            m_blocked_room = room;
            return;
        }
        take_prefix(sequence);
        move(sequence, Stage::PREFILLING);
        append_entry(sequence, length);
        promised += blocks_to_prompt_end(sequence);
    }
}

size_t Scheduler::blocks_to_prompt_end(const Sequence& sequence) const {
    const size_t room = sequence.max_chunk_slots - sequence.num_slots();
    return missing_blocks(sequence, std::min(sequence.num_uncached(), room));
}

size_t Scheduler::longest_chunk(const Sequence& sequence, size_t slots, size_t uncached) const {
    size_t length = std::min(uncached, sequence.max_chunk_slots - slots);
    // What is observed is a chunk of its own, as it is where the tree has all before it: kernels
    // round otherwise in longer chunks, and other tokens would be kept.
    if (m_config.enable_prefix_caching && sequence.num_evicted == 0 &&
        length > sequence.num_observed)
        length -= sequence.num_observed;
    const size_t begin = sequence.tokens.size() - uncached;
    const auto& ends = sequence.checkpoints;
    const auto end = std::upper_bound(ends.begin(), ends.end(), begin);
    return end != ends.end() ? std::min(length, *end - begin) : length;
}

size_t Scheduler::chunk_length(const Sequence& sequence, size_t slots, size_t uncached,
                               bool others) const {
    uncached = longest_chunk(sequence, slots, uncached);
    if (uncached <= m_budget) return uncached;
    if (!m_config.dynamic_split_fuse && uncached <= m_config.max_num_batched_tokens) return 0;
    const bool shares = others && m_budget > m_config.max_num_batched_tokens / max_prompt_shares;
    return shares ? (m_budget + 1) / 2 : m_budget;
}

void Scheduler::ask_for_a_step() {
    // Prompts before it come to their end; decodes, as new ones join them, may never leave room.
    if (m_batch.entries.size() == m_num_decodes) m_prompt_waits = true;
}

void Scheduler::lengthen() {
    for (BatchEntry& entry : m_batch.entries) {
        if (m_budget == 0) return;
        Sequence& sequence = *entry.sequence;
        const bool has_drafts = sequence.num_drafted > 0;
        if (entry.samples() && !has_drafts) continue;
        const size_t uncached = sequence.num_uncached();
        size_t most =
            has_drafts ? uncached : longest_chunk(sequence, sequence.num_slots(), uncached);
        if (sequence.stage == Stage::DECODING && !has_drafts && m_batch.entries.size() == 1)
            most = std::min(most, m_longest_decode);
        size_t length = std::min(entry.num_tokens + m_budget, std::max(entry.num_tokens, most));
        const auto fits = [&] {
            return missing_blocks(sequence, length) <= m_store.num_available();
        };
        while (has_drafts && length > entry.num_tokens && !fits()) --length;
        if (!fits()) continue;
        take_blocks(sequence, length);
        const size_t more = length - entry.num_tokens;
        m_budget -= more;
        m_batch.num_tokens += more;
        set_length(entry, length);
    }
}

void Scheduler::make_room_for_priority() {
    if (m_waiting.empty() || m_running.empty()) return;
    const Sequence& head = **m_waiting.begin();
    const auto yields = [&](const Sequence& running) {
        return running.priority < head.priority && ByRank()(&head, &running);
    };
    const size_t needed =
        blocks_for(std::min(head.tokens.size(), head.max_chunk_slots)) + m_store.blocks_per_state();
    // Only if it helps.
    size_t reachable = m_store.num_available(), num_yielding = 0;
    for (auto at = m_running.rbegin(); at != m_running.rend() && yields(**at); ++at, ++num_yielding)
        reachable += (*at)->blocks.size() + m_store.blocks_per_state();
    if (num_yielding == 0 || reachable < needed) return;
    while (needed > m_store.num_available() || m_running.size() >= m_config.max_num_seqs) {
        if (m_running.empty() || !yields(**m_running.rbegin())) return;
        preempt_last();
    }
}

void Scheduler::append_entry(Sequence& sequence, size_t num_tokens) {
    take_blocks(sequence, num_tokens);
    set_length(m_batch.entries.emplace_back(BatchEntry{&sequence, 0, 0, 0}), num_tokens);
    m_batch.num_tokens += num_tokens;
    m_budget -= num_tokens;
}

void Scheduler::set_length(BatchEntry& entry, size_t num_tokens) const {
    const Sequence& sequence = *entry.sequence;
    const bool all = sequence.wants_prompt_logits && sequence.num_cached < sequence.prompt_length;
    const size_t end = sequence.num_cached + num_tokens, committed = sequence.num_committed();
    entry.num_tokens = num_tokens;
    entry.num_sampled =
        end < committed ? 0 : end + 1 - std::max(committed, sequence.num_cached + 1);
    entry.num_logits = all ? num_tokens : entry.num_sampled;
    const bool is_own = sequence.state != no_state &&
                        m_store.states().references(sequence.state) == 1 &&
                        !m_store.states().is_kept(sequence.state);
    entry.num_split = is_own && end > committed ? committed - sequence.num_cached : 0;
}

void Scheduler::advance() {
    for (const BatchEntry& entry : m_batch.entries) {
        Sequence& sequence = *entry.sequence;
        const bool has_drafts = sequence.num_cached + entry.num_tokens > sequence.num_committed();
        if (sequence.state != no_state && has_drafts) {
            sequence.confirmed_state = sequence.state;
            sequence.num_confirmed = sequence.num_cached + entry.num_split;
        } else if (sequence.state != no_state && sequence.state != sequence.next_state) {
            m_store.release_state(sequence.state);
        }
        sequence.state = std::exchange(sequence.next_state, no_state);
        sequence.num_cached += entry.num_tokens;
        sequence.num_replayed -= std::min(sequence.num_replayed, entry.num_tokens);
        share_blocks(sequence);
        if (has_checkpoints()) leave_checkpoint(sequence);
        if (!sequence.is_prefilling()) continue;
        if (entry.samples()) {
            share_all(sequence);
            move(sequence, Stage::DECODING);
        }
        dismiss_followers(sequence);
    }
}

void Scheduler::rollback(Sequence& sequence, size_t count) {
    check_invariant(count <= sequence.num_cached && sequence.num_drafted == 0, count,
                    " tokens are to be rolled back of ", sequence.num_cached, " beside ",
                    sequence.num_drafted, " drafts");
    sequence.num_cached -= count;
    const StateId confirmed = std::exchange(sequence.confirmed_state, no_state);
    if (confirmed != no_state && count > 0) {
        m_store.release_state(std::exchange(sequence.state, confirmed));
        sequence.num_replayed = sequence.num_cached - sequence.num_confirmed;
        sequence.num_cached = sequence.num_confirmed;
    } else if (confirmed != no_state) {
        m_store.release_state(confirmed);
    }
    for (const size_t needed = blocks_for(sequence.num_slots()); sequence.blocks.size() > needed;) {
        m_store.release(sequence.blocks.back());
        sequence.blocks.pop_back();
    }
    share_blocks(sequence);
}

bool Scheduler::writes_shared_block(const Sequence& sequence) const {
    const size_t slot = sequence.num_slots();
    return slot % m_block_size != 0 && pool().references(sequence.blocks[slot / m_block_size]) > 1;
}

size_t Scheduler::missing_blocks(const Sequence& sequence, size_t num_tokens) const {
    const size_t needed = blocks_for(sequence.num_slots() + num_tokens);
    const size_t held = sequence.blocks.size();
    return (needed > held ? needed - held : 0) + (writes_shared_block(sequence) ? 1 : 0) +
           (needs_state(sequence, num_tokens) ? m_store.blocks_per_state() : 0);
}

bool Scheduler::needs_state(const Sequence& sequence, size_t num_tokens) const {
    if (m_store.blocks_per_state() == 0) return false;
    if (sequence.next_state != no_state && sequence.next_state != sequence.state) return false;
    return sequence.state == no_state || m_store.states().references(sequence.state) > 1 ||
           sequence.num_cached + num_tokens > sequence.num_committed();
}

void Scheduler::take_state(Sequence& sequence, size_t num_tokens) {
    if (m_store.blocks_per_state() == 0) return;
    if (needs_state(sequence, num_tokens)) {
        sequence.next_state = m_store.take_state();
    } else if (sequence.next_state == no_state) {
        // A checkpoint is written over only where there is no room for another state.
        const bool is_kept = m_store.states().is_kept(sequence.state);
        const bool has_room = missing_blocks(sequence, num_tokens) + m_store.blocks_per_state() <=
                              m_store.num_available();
        if (is_kept && !has_room) m_store.tree().checkpoints().drop(sequence.state);
        sequence.next_state = is_kept && has_room ? m_store.take_state() : sequence.state;
    }
}

void Scheduler::take_blocks(Sequence& sequence, size_t num_tokens) {
    take_state(sequence, num_tokens);
    size_t missing = missing_blocks(sequence, num_tokens);
    if (writes_shared_block(sequence)) {
        BlockId& block = sequence.blocks[sequence.num_slots() / m_block_size];
        const BlockId copy = m_store.take();
        m_batch.copies.push_back({block, copy});
        m_store.release(block);
        block = copy;
        --missing;
    }
    for (; missing > 0; --missing) sequence.blocks.push_back(m_store.take());
}

void Scheduler::release_blocks(Sequence& sequence) {
    // The last first: of idle blocks in the tree, it is to go before those it depends on.
    for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block)
        m_store.release(*block);
    sequence.blocks.clear();
    if (sequence.next_state == sequence.state) sequence.next_state = no_state;
    for (StateId* state : {&sequence.state, &sequence.next_state, &sequence.confirmed_state})
        if (*state != no_state) m_store.release_state(std::exchange(*state, no_state));
    sequence.num_replayed = sequence.last_checkpoint = 0;
    sequence.num_cached = sequence.num_evicted = sequence.num_tree_blocks = 0;
    sequence.num_shareable = std::numeric_limits<size_t>::max();
}

void Scheduler::preempt_for_blocks() {
    check_invariant(m_running.size() > 1 || (*m_running.begin())->is_idle(),
                    "a sequence outgrew the pool");
    preempt_last();
}

void Scheduler::preempt_last() {
    Sequence& sequence = **m_running.rbegin();
    // One that is idle has nothing to compute until resume().
    const Stage next = sequence.is_idle() ? Stage::SUSPENDED : Stage::WAITING;
    share_all(sequence, /*is_over=*/true);
    keep_checkpoint(sequence, sequence.num_cached - sequence.last_checkpoint);
    sequence.drop_drafts();
    give_up_cache(sequence, next);
    ++m_totals.num_preemptions;
}

bool Scheduler::own_block(Sequence& sequence, size_t entry, std::optional<BlockCopy>& copy) {
    copy.reset();
    // What is overwritten leaves the part of the table that the tree may have.
    sequence.num_shareable = std::min(sequence.num_shareable, entry * m_block_size);
    sequence.num_tree_blocks = std::min(sequence.num_tree_blocks, entry);
    const BlockId block = sequence.blocks[entry];
    if (pool().references(block) == 1 && !pool().is_kept(block)) return true;
    while (m_store.num_available() == 0) {
        const bool is_last = *m_running.rbegin() == &sequence;
        preempt_last();
        if (is_last) return false;
    }
    sequence.blocks[entry] = m_store.take();
    copy = BlockCopy{block, sequence.blocks[entry]};
    m_store.release(block);
    return true;
}

void Scheduler::clear_prefixes(const std::optional<std::set<std::string>>& salts) {
    m_store.tree().clear(salts);
    m_pins.restore();
}

BlockUsage Scheduler::usage() const {
    const size_t num_checkpoints = m_store.tree().checkpoints().size();
    const size_t num_cached =
        m_pins.num_held_by_pins_alone() + m_store.states().num_idle() * m_store.blocks_per_state();
    return {pool().num_held() - num_cached, pool().num_idle() + num_cached, pool().num_free(),
            m_store.tree().size() + num_checkpoints * m_store.blocks_per_state(), num_checkpoints};
}

void Scheduler::give_back_unused(BlockMemory& memory) {
    constexpr size_t worth_while = size_t(64) << 20;
    const size_t touched = m_store.num_touched(), used = pool().size() - pool().num_free();
    const bool much = touched >= 4 * used && (touched - used) * memory.block_bytes() >= worth_while;
    if (!much && !m_store.exceeds_budget()) return;
    for (const BlockRange& range : m_store.forget_free()) memory.give_back(range);
    for (const BlockRange& range : m_store.forget_free_states()) memory.give_back_states(range);
}

void Scheduler::drop_blocks(Sequence& sequence, const std::vector<size_t>& indices,
                            size_t num_slots) {
    std::vector<BlockId>& blocks = sequence.blocks;
    const bool ascend = std::adjacent_find(indices.begin(), indices.end(),
                                           std::greater_equal<size_t>()) == indices.end();
    check_invariant(ascend && (indices.empty() || indices.back() < blocks.size()) &&
                        num_slots <= sequence.num_slots() &&
                        blocks_for(sequence.num_slots() - num_slots) + indices.size() ==
                            blocks_for(sequence.num_slots()),
                    indices.size(), " block table entries and ", num_slots,
                    " slots are to be dropped of ", blocks.size(), " that hold ",
                    sequence.num_slots(), " slots; allowed are those that the rest does not need");
    m_totals.num_evicted += num_slots;
    sequence.num_evicted += num_slots;
    if (indices.empty()) return;
    sequence.num_shareable = std::min(sequence.num_shareable, indices.front() * m_block_size);
    sequence.num_tree_blocks = std::min(sequence.num_tree_blocks, indices.front());
    for (auto index = indices.rbegin(); index != indices.rend(); ++index)
        m_store.release(blocks[*index]);
    auto next = indices.begin();
    size_t kept = *next;
    for (size_t i = *next; i < blocks.size(); ++i) {
        if (next != indices.end() && i == *next)
            ++next;
        else
            blocks[kept++] = blocks[i];
    }
    blocks.resize(kept);
}

}  // namespace pagewheel
