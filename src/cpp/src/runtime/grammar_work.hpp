// What is to be found in one sequence's grammar, by other threads than the step's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "sampling/grammar_rule.hpp"

namespace pagewheel {

/// Of a request, shared by its sequences.
struct GrammarPace {
    bool is_slow = false;  ///< under GrammarAhead's mutex
};

/// A sequence's grammar with what it needs of the sequence, which may end meanwhile. While it is
/// busy the rule is that of the thread that works at it, and the sequence gets no token.
struct GrammarWork {
    static constexpr size_t none = std::numeric_limits<size_t>::max();

    std::shared_ptr<GrammarRule> rule;
    std::shared_ptr<GrammarPace> pace;
    std::vector<int64_t> tokens = {};       ///< generated ones; changed where it is not busy
    std::atomic<bool> is_abandoned{false};  ///< the sequence is gone

    // ---- Under GrammarAhead's mutex.
    bool wants_jump_forward = false, wants_mask = false;
    bool is_busy = false;  ///< waits for a thread, or one works at it
    bool is_awaited = false;
    size_t jump_forward_of = none, mask_of = none;  ///< after how many tokens they are known

    GrammarWork(std::shared_ptr<GrammarRule> of, std::shared_ptr<GrammarPace> with)
        : rule(std::move(of)), pace(std::move(with)) {}
};

/// A sequence's own. What goes on when it ends is cancelled.
class OwnGrammarWork {
public:
    OwnGrammarWork() = default;
    explicit OwnGrammarWork(std::shared_ptr<GrammarWork> work) : m_work(std::move(work)) {}
    OwnGrammarWork(OwnGrammarWork&&) = default;
    OwnGrammarWork& operator=(OwnGrammarWork&& other) {
        abandon();
        m_work = std::move(other.m_work);
        return *this;
    }
    ~OwnGrammarWork() { abandon(); }

    const std::shared_ptr<GrammarWork>& get() const { return m_work; }

private:
    void abandon() {
        if (!m_work) return;
        m_work->is_abandoned = true;
        m_work->rule->cancel();
        m_work.reset();
    }

    std::shared_ptr<GrammarWork> m_work;
};

}  // namespace pagewheel
