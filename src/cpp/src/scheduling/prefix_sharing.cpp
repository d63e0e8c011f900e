// The scheduler's dealings with the prefix tree.
#include <algorithm>

#include "scheduling/scheduler.hpp"

namespace pagewheel {
namespace {

// Checkpoints are left behind this many blocks at least, where nothing else asks for one.
constexpr size_t blocks_between_checkpoints = 16;
// A prompt seldom parts from another there: such a checkpoint counts for a part of what it saves.
constexpr size_t interval_discount = 4;

size_t common_prefix(const std::vector<int64_t>& a, const std::vector<int64_t>& b, size_t most) {
    most = std::min({most, a.size(), b.size()});
    return size_t(std::mismatch(a.begin(), a.begin() + long(most), b.begin()).first - a.begin());
}

}  // namespace

size_t Scheduler::max_prefix(const Sequence& sequence) const {
    if (!m_config.enable_prefix_caching || sequence.wants_prompt_logits) return 0;
    // The last token is always computed: its logits are wanted.
    const size_t end = std::min(sequence.num_committed(), sequence.max_chunk_slots);
    return end - std::min(end, std::max<size_t>(1, sequence.num_observed));
}

void Scheduler::find_prefix(const Sequence& sequence) {
    m_store.tree().match(sequence.prefix_key, sequence.tokens.data(), max_prefix(sequence),
                         m_match);
}

bool Scheduler::follow_another(Sequence& sequence) {
    const size_t most = max_prefix(sequence);
    if (most == 0) return false;
    for (Sequence* leader : m_prefilling) {
        if (leader->priority < sequence.priority || leader->num_evicted > 0) continue;
        if (!(leader->prefix_key == sequence.prefix_key)) continue;
        const size_t common = common_prefix(sequence.tokens, leader->tokens, most);
        // Less than a block is not worth waiting for.
        if (common < m_match.num_tokens + m_block_size) continue;
        // The tree gets full blocks as they are computed, the last one with the prompt's end.
        const size_t until =
            has_checkpoints() ? checkpoint_for(*leader, common)
                              : std::min(blocks_for(common) * m_block_size, leader->tokens.size());
        if (until == 0) continue;
        move(sequence, Sequence::Stage::FOLLOWING);
        sequence.leader = leader;
        sequence.follow_until = until;
        sequence.follower_index = leader->followers.size();
        leader->followers.push_back(&sequence);
        return true;
    }
    return false;
}

size_t Scheduler::checkpoint_for(Sequence& leader, size_t common) {
    std::vector<size_t>& ends = leader.checkpoints;
    const auto next = std::upper_bound(ends.begin(), ends.end(), common);
    // A chunk shorter than a block is not worth the tokens that it saves.
    if (next != ends.begin() && *std::prev(next) > leader.num_cached &&
        *std::prev(next) + m_block_size > common)
        return *std::prev(next);
    if (common <= leader.num_cached) return 0;
    ends.insert(next, common);
    for (BatchEntry& entry : m_batch.entries) {
        if (entry.sequence != &leader || leader.num_cached + entry.num_tokens <= common) continue;
        const size_t length = common - leader.num_cached;
        m_batch.num_tokens -= entry.num_tokens - length;
        m_budget += entry.num_tokens - length;
        set_length(entry, length);
    }
    return common;
}

void Scheduler::plan_checkpoints(Sequence& sequence) const {
    sequence.checkpoints.clear();
    if (!has_checkpoints()) return;
    // Where another prompt parted from this one, others will. The end of a prompt is often the
    // template's, and the next turn of a chat has something else there.
    const size_t end = sequence.prompt_length - std::min(sequence.prompt_length, m_block_size / 2);
    size_t last = m_match.num_tokens;
    for (const size_t wanted : {m_match.num_in_blocks, end}) {
        if (wanted < last + m_block_size) continue;
        sequence.checkpoints.push_back(wanted);
        last = wanted;
    }
}

void Scheduler::leave_checkpoint(Sequence& sequence) {
    const size_t end = sequence.num_cached, saves = end - sequence.last_checkpoint;
    const auto& ends = sequence.checkpoints;
    const bool is_wanted = std::binary_search(ends.begin(), ends.end(), end);
    const bool ends_prompt = sequence.is_prefilling() && end == sequence.num_committed();
    if (is_wanted || ends_prompt)
        keep_checkpoint(sequence, saves);
    else if (saves >= blocks_between_checkpoints * m_block_size)
        keep_checkpoint(sequence, saves / interval_discount);
}

void Scheduler::keep_checkpoint(Sequence& sequence, size_t saves) {
    const size_t end = sequence.num_cached;
    if (!has_checkpoints() || end == 0 || num_shareable(sequence) < end) return;
    share_all(sequence);
    const size_t last_block = (end - 1) / m_block_size, begin = last_block * m_block_size;
    PrefixTree& tree = m_store.tree();
    const NodeId parent =
        last_block > 0 ? sequence.blocks[last_block - 1] : tree.root(sequence.prefix_key);
    if (!tree.is_full(parent)) return;
    m_store.keep_checkpoint(parent, &sequence.tokens[begin], end - begin, sequence.state, saves);
    sequence.last_checkpoint = end;
}

void Scheduler::unlink_follower(Sequence& sequence) {
    std::vector<Sequence*>& followers = sequence.leader->followers;
    followers[sequence.follower_index] = followers.back();
    followers[sequence.follower_index]->follower_index = sequence.follower_index;
    followers.pop_back();
    sequence.leader = nullptr;
}

void Scheduler::dismiss_followers(Sequence& leader) {
    const bool goes_on = leader.is_prefilling() && leader.num_evicted == 0;
    for (size_t i = leader.followers.size(); i-- > 0;) {
        Sequence& follower = *leader.followers[i];
        if (goes_on && leader.num_cached < follower.follow_until) continue;
        move(follower, Sequence::Stage::WAITING);
    }
}

void Scheduler::take_prefix(Sequence& sequence) {
    for (BlockId block : m_match.blocks) m_store.share(block);
    sequence.blocks.assign(m_match.blocks.begin(), m_match.blocks.end());
    sequence.num_tree_blocks = m_match.blocks.size();
    sequence.num_cached = sequence.last_checkpoint = m_match.num_tokens;
    sequence.state = m_match.state;
    if (sequence.state != no_state) {
        m_store.share_state(sequence.state);
        m_store.tree().checkpoints().touch(sequence.state);
    }
    if (m_match.num_partial > 0) {
        // Even if the source is evicted for it: copies come before all writes, in their order.
        const BlockId copy = m_store.take();
        if (copy != m_match.partial) m_batch.copies.push_back({m_match.partial, copy});
        sequence.blocks.push_back(copy);
        m_store.tree().touch(m_match.partial);
    }
    if (sequence.num_starts > 0) return;
    sequence.num_prefix_hits = m_match.num_tokens;
    m_totals.num_prefix_hits += m_match.num_tokens;
    m_totals.num_prompt_tokens += sequence.tokens.size();
}

size_t Scheduler::num_shareable(const Sequence& sequence) {
    const bool may_go_back = sequence.confirmed_state != no_state;
    return std::min({may_go_back ? sequence.num_confirmed : sequence.num_cached,
                     sequence.num_shareable, sequence.num_committed()});
}

void Scheduler::share_blocks(Sequence& sequence, bool is_over) {
    const size_t end = num_shareable(sequence);
    size_t& count = sequence.num_tree_blocks;
    if (!m_config.enable_prefix_caching || (count + 1) * m_block_size > end) return;
    PrefixTree& tree = m_store.tree();
    // The tree may have been cleared meanwhile, and of a block that is pinned it may have got back
    // its first tokens alone.
    if (count > 0 && !tree.is_full(sequence.blocks[count - 1])) count = 0;
    NodeId parent = count > 0 ? sequence.blocks[count - 1] : tree.root(sequence.prefix_key);
    for (; (count + 1) * m_block_size <= end; ++count) {
        BlockId& block = sequence.blocks[count];
        parent = tree.insert(parent, &sequence.tokens[count * m_block_size], m_block_size, block);
        if (parent == block) continue;
        // Another sequence was first: one of the two copies is enough. They may be rounded
        // differently, so a decode, which drafts may take to this block's end and beyond in one
        // step, keeps its own until it is over.
        if (sequence.stage == Sequence::Stage::DECODING && !is_over) return;
        m_store.share(parent);
        m_store.release(block);
        block = parent;
    }
}

void Scheduler::share_all(Sequence& sequence, bool is_over) {
    share_blocks(sequence, is_over);
    const size_t end = num_shareable(sequence);
    const size_t count = sequence.num_tree_blocks;
    const size_t rest = end - std::min(end, count * m_block_size);
    if (!m_config.enable_prefix_caching || rest == 0) return;
    PrefixTree& tree = m_store.tree();
    if (count > 0 && !tree.is_full(sequence.blocks[count - 1])) return;
    const NodeId parent = count > 0 ? sequence.blocks[count - 1] : tree.root(sequence.prefix_key);
    tree.insert(parent, &sequence.tokens[count * m_block_size], rest, sequence.blocks[count]);
}

}  // namespace pagewheel
