// Guesses of the tokens to come, which the model confirms several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/eviction_manager.hpp"
#include "runtime/requests.hpp"

namespace pagewheel {

/// Guesses how a sequence goes on. What it says changes the speed alone: each token is chosen from
/// the model's own logits, by the sequence's own sampler, and drafts that differ are rolled back.
class Drafter {
public:
    virtual ~Drafter() = default;
    /// Appends at most `most` tokens that may follow `tokens` to `drafts`. An exception ends the
    /// request.
    virtual void propose(const std::vector<int64_t>& tokens, size_t most,
                         std::vector<int64_t>& drafts) = 0;
};

/// Puts drafts behind the tokens of sequences that decode, before a step, and takes away what is
/// left of them after it. Under the step's lock.
class Drafting {
public:
    /// `eviction` null: nothing is evicted.
    Drafting(std::unique_ptr<Drafter> drafter, size_t vocabulary, const EvictionManager* eviction)
        : m_drafter(std::move(drafter)), m_vocabulary(vocabulary), m_eviction(eviction) {}

    void propose(Requests& requests);
    void clear_drafts();

private:
    void propose(SequenceState& sequence);

    const std::unique_ptr<Drafter> m_drafter;
    const size_t m_vocabulary;
    const EvictionManager* const m_eviction;
    std::vector<Sequence*> m_drafted;  // of this step
    std::vector<int64_t> m_drafts;     // kept for its memory
};

}  // namespace pagewheel
