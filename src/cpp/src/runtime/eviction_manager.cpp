#include "runtime/eviction_manager.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace pagewheel {
namespace {

constexpr size_t no_limit = std::numeric_limits<size_t>::max();

}  // namespace

EvictionManager::EvictionManager(const CacheEvictionConfig& config, Model& model,
                                 Scheduler& scheduler, size_t context_length)
    : m_model(model),
      m_scheduler(scheduler),
      m_context_length(context_length),
      m_evictor(config, model.layer_caches(), model.block_size(), context_length,
                model.rotated_in_place()) {
    check_argument(!m_evictor.observes_queries() || model.observe_queries(),
                   ParameterName("policy"),
                   " wants to see queries, which takes the native attention and a model whose "
                   "rotary frequencies are known");
}

void EvictionManager::admit(Sequence& sequence, size_t max_tokens) const {
    EvictionState& state = *sequence.eviction;
    state.may_evict = max_tokens > config().get_max_cache_size();
    if (!state.may_evict) return;
    if (config().evict_during_prefill)
        sequence.max_chunk_slots = m_evictor.chunk_end();
    else if (const size_t delay = config().decision_delay; delay > 0)
        state.first_decision = std::min(sequence.tokens.size() + delay,
                                        m_context_length == 0 ? no_limit : m_context_length);
    // At least the last token, whose logits are wanted, is computed.
    sequence.num_observed = std::max<size_t>(1, m_evictor.prompt_window());
}

EvictionProgress EvictionManager::progress(const BatchEntry& entry) const {
    const Sequence& sequence = *entry.sequence;
    return {sequence.num_slots(), entry.num_tokens, sequence.num_uncached(),
            !sequence.is_prefilling(), sequence.max_chunk_slots != no_limit};
}

size_t EvictionManager::most_drafts(const Sequence& sequence, size_t wanted) const {
    const EvictionState& state = *sequence.eviction;
    if (!state.may_evict) return wanted;
    const size_t end = m_evictor.next_decision(state), held = sequence.num_slots();
    const size_t uncached = sequence.num_uncached();
    size_t most = std::min(wanted, end - std::min(end, held + uncached));
    EvictionProgress progress{held, 0, 0, true, sequence.max_chunk_slots != no_limit};
    for (; most > 0; --most) {
        progress.new_tokens = progress.to_prompt_end = uncached + most;
        if (m_evictor.window(state, progress) == 0) break;
    }
    return most;
}

const std::vector<size_t>& EvictionManager::windows(const Batch& batch) {
    m_windows.clear();
    for (const BatchEntry& entry : batch.entries) {
        EvictionState& state = *entry.sequence->eviction;
        if (state.start != entry.sequence->num_starts) state.clear();  // first, or was preempted
        state.start = entry.sequence->num_starts;
        m_windows.push_back(m_evictor.window(state, progress(entry)));
    }
    return m_windows;
}

void EvictionManager::observe(const Batch& batch) {
    for (size_t i = 0; i < batch.entries.size(); ++i) {
        if (m_windows[i] == 0) continue;
        const Sequence& sequence = *batch.entries[i].sequence;
        m_evictor.observe(*sequence.eviction, sequence.num_slots(), m_windows[i],
                          m_model.scores(i));
        if (m_evictor.observes_queries())
            m_evictor.observe_queries(*sequence.eviction, sequence.num_slots(),
                                      kernels::BatchTables::num_observed(m_windows[i]),
                                      m_model.queries(i));
    }
}

void EvictionManager::fork(const Sequence& parent, Sequence& child) const {
    *child.eviction = *parent.eviction;
    child.eviction->start = child.num_starts;
    child.max_chunk_slots = parent.max_chunk_slots;
    child.num_observed = parent.num_observed;
}

size_t EvictionManager::due(const Sequence& sequence) const {
    const size_t held = sequence.num_slots();
    const EvictionState& state = *sequence.eviction;
    if (!sequence.is_running() || sequence.is_idle() || !state.may_evict) return 0;
    // A prompt that has not ended is evicted only where that is wanted on the way: a last token
    // that is still to be computed is no decode.
    if (sequence.is_prefilling() && held < sequence.max_chunk_slots) return 0;
    // Each sequence that runs may need a block for its next token, and one to copy a shared one to.
    const bool may_wait =
        m_scheduler.store().num_available() > 2 * m_scheduler.queues().num_running;
    return held < state.first_decision && may_wait ? 0 : m_evictor.due(held);
}

EvictionDecision EvictionManager::ask_policy(Sequence& sequence, size_t count) const {
    try {
        return m_evictor.decide(
            *sequence.eviction, sequence.blocks, sequence.num_slots(), count,
            sequence.is_prefilling() && sequence.num_cached < sequence.prompt_length,
            sequence.is_prefilling() ? m_evictor.chunk_end() : m_evictor.decode_end(),
            [&](size_t e) { return size_t(m_scheduler.pool().references(sequence.blocks[e])); });
    } catch (const std::exception& error) {
        throw PolicyError(error.what());
    } catch (...) {
        throw PolicyError("an unknown error");
    }
}

void EvictionManager::evict(Sequence& sequence) {
    const size_t count = due(sequence);
    if (count == 0) return;
    EvictionState& state = *sequence.eviction;
    const EvictionDecision decision = ask_policy(sequence, count);
    m_process.check("pipeline");  // a child has no threads to move survivors with
    // Computed again after a preemption, it would not fit otherwise.
    sequence.max_chunk_slots = m_evictor.chunk_end();
    state.first_decision = 0;
    for (size_t entry : decision.written) {
        std::optional<BlockCopy> copy;
        if (!m_scheduler.own_block(sequence, entry, copy)) return;
        if (copy) m_model.cache().copy_block(copy->from, copy->to);
    }
    m_evictor.apply(decision, state, sequence.blocks);
    m_scheduler.drop_blocks(sequence, decision.released, count);
}

}  // namespace pagewheel
