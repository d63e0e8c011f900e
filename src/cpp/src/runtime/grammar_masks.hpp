// What the grammars of sequences allow and force, and how long steps wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/process.hpp"
#include "grammar/grammar_limits.hpp"
#include "sampling/sequence_grammar.hpp"

namespace pagewheel {

struct SequenceState;

/// What a request's grammar may take of processors, and took. Under GrammarMasks' mutex.
struct GrammarAccount {
    std::chrono::nanoseconds credit;   ///< it may hold steps up so long; below 0: overdrawn
    std::chrono::nanoseconds late{0};  ///< what its late masks took
    size_t num_works = 0;
};

/// A mask that a thread of the pool finds. Until it is done, the sequence's grammar is the
/// thread's, and the sequence gets no token. It may outlive the sequence.
struct LateMask {
    std::shared_ptr<SequenceGrammar> grammar;
    std::shared_ptr<const SequenceGrammar> beginning;  ///< to restart from; null: as it is
    std::shared_ptr<GrammarAccount> account;
    std::vector<int64_t> tokens;             ///< generated ones
    std::atomic<bool> is_abandoned = false;  ///< the sequence is gone

    // ---- Under GrammarMasks' mutex.
    bool is_running = false, is_done = false;
};

/// Finds masks and jump-forward tokens. A usual mask takes some microseconds, less than waking a
/// thread. So the thread that chooses a token finds its mask, as long as the request has credit: a
/// few milliseconds of a processor, and a little more for each token. A watching thread cancels
/// what takes longer. Then, and while there is no credit, the mask is late: the sequence waits with
/// its logits (TokenStep), and one of a pool of threads finds the mask when nothing else wants the
/// processor. Those of the request that took least so far come first. What all late masks of a
/// request may take is limited, too. All of this is processor time, so that a loaded machine
/// changes nothing.
class GrammarMasks {
public:
    explicit GrammarMasks(const GrammarLimits& limits) : m_limits(limits) {}
    /// Cancels what is left.
    ~GrammarMasks();

    /// Whether the mask of the sequence's next token is there, or why there is none, which is
    /// thrown where the mask is applied. False: it is late. Several threads may ask at a time, for
    /// one sequence each.
    bool find_mask(SequenceState& sequence);
    /// The tokens that must come next in a sequence that is no beam. None where they would be late.
    std::vector<int64_t> find_jump_forward(SequenceState& sequence);
    /// Waits until one of these sequences, whose masks are late, has its mask, or for 20 ms.
    void wait_for_any(const std::vector<SequenceState*>& sequences);

private:
    using Lock = std::unique_lock<std::mutex>;
    using Time = std::chrono::nanoseconds;

    /// What a thread finds right now; it stands on that thread's stack.
    struct Work {
        SequenceGrammar& grammar;
        Time most;                                        // of processor time
        const std::atomic<bool>* is_abandoned = nullptr;  // of a late mask
        RunningThread thread = {};
        Time before = thread.processor_time();
        bool is_cancelled = false;

        Time used() const { return thread.processor_time() - before; }
    };

    enum class Outcome { DONE, NO_CREDIT, CANCELLED };
    /// Calls `function`, which works at the grammar, if there is credit, until that is used up.
    template <class Function>
    Outcome run_at_once(SequenceState& sequence, SequenceGrammar& grammar, Function&& function);
    /// Calls it while the watching thread sees the work, and charges the account.
    template <class Function>
    void run(Lock& lock, Work& work, GrammarAccount& account, Function&& function);
    /// Hands the sequence's mask to the pool. A grammar that was cancelled begins anew.
    void make_late(SequenceState& sequence, bool is_cancelled);

    void serve();
    /// The next for a thread of the pool: one of each lexer at a time. Null: there is none.
    std::shared_ptr<LateMask> take();
    void find(Lock& lock, LateMask& mask);
    void watch();

    const GrammarLimits m_limits;
    std::mutex m_mutex;  // guards what follows
    std::condition_variable m_has_late, m_is_done, m_has_works;
    std::thread m_watcher;            // from the first work on
    std::vector<std::thread> m_pool;  // grows with what is late
    std::vector<Work*> m_works;
    std::vector<std::shared_ptr<LateMask>> m_late;  // not done
    size_t m_num_idle = 0;                          // threads of the pool
    bool m_saw_works = false;                       // since the watcher looked
    bool m_ends = false;
};

}  // namespace pagewheel
