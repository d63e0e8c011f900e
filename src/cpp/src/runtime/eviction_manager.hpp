// Eviction as the step loop drives it.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "base/process.hpp"
#include "eviction/evictor.hpp"
#include "runner/model.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// A policy threw, or answered wrongly.
struct PolicyError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Stands between scheduler, model and evictor: says before a step whose attention is to be
/// observed, takes down afterwards what was seen, and evicts what is due.
class EvictionManager {
public:
    /// `context_length`: positions that the model was made for, 0: not known.
    EvictionManager(const CacheEvictionConfig& config, Model& model, Scheduler& scheduler,
                    size_t context_length);

    const CacheEvictionConfig& config() const { return m_evictor.config(); }
    /// Blocks that one sequence holds at most while its prompt is evicted in chunks.
    size_t most_blocks() const { return m_evictor.most_blocks(); }
    /// To be called before the sequence is added, which will have `max_tokens` at most.
    void admit(Sequence& sequence, size_t max_tokens) const;
    /// How many of `wanted` drafts a decoding sequence may compute in one step: what is observed
    /// is never rolled back, and a step ends where the budget does.
    size_t most_drafts(const Sequence& sequence, size_t wanted) const;
    /// How many of each batch entry's last new tokens are to be observed.
    const std::vector<size_t>& windows(const Batch& batch);
    /// Takes in what was seen. To be called after the step, whose tokens count as computed.
    void observe(const Batch& batch);
    /// `child` forks from `parent`.
    void fork(const Sequence& parent, Sequence& child) const;
    /// Evicts what is due of a running sequence, and may preempt it or others to have blocks to
    /// copy shared ones to. Throws PolicyError; nothing has changed then. Throws Error in a child
    /// that the policy made by fork().
    void evict(Sequence& sequence);

private:
    EvictionDecision ask_policy(Sequence& sequence, size_t count) const;
    EvictionProgress progress(const BatchEntry& entry) const;
    /// How many tokens must go now.
    size_t due(const Sequence& sequence) const;

    Model& m_model;
    Scheduler& m_scheduler;
    const size_t m_context_length;
    Evictor m_evictor;
    std::vector<size_t> m_windows;
    const ProcessMark m_process;
};

}  // namespace pagewheel
