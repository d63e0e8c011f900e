// What the grammars of sequences allow and force, and the threads that find it beside the step's.
#pragma once

#include <sys/types.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "grammar/grammar_limits.hpp"
#include "sampling/sequence_grammar.hpp"
#include "scheduling/sequence.hpp"

namespace pagewheel {

struct SequenceState;

/// Shared by the sequences of a request.
struct GrammarPace {
    bool is_slow = false;  ///< under GrammarAhead's mutex
};

/// A sequence's grammar with what it needs of the sequence, which may end meanwhile. While it is
/// busy the rule is that of the thread that works at it, and the sequence gets no token.
struct GrammarWork {
    static constexpr size_t none = std::numeric_limits<size_t>::max();

    std::shared_ptr<SequenceGrammar> rule;
    std::shared_ptr<GrammarPace> pace;
    std::vector<int64_t> tokens = {};       ///< generated ones; changed where it is not busy
    std::atomic<bool> is_abandoned{false};  ///< the sequence is gone

    // ---- Under GrammarAhead's mutex.
    bool wants_jump_forward = false, wants_mask = false;
    bool is_busy = false;  ///< waits for a thread, or one works at it
    bool is_awaited = false;
    size_t jump_forward_of = none, mask_of = none;  ///< after how many tokens they are known

    GrammarWork(std::shared_ptr<SequenceGrammar> of, std::shared_ptr<GrammarPace> with)
        : rule(std::move(of)), pace(std::move(with)) {}
    /// The sequence has no use for it any more: what goes on is cancelled.
    void abandon() {
        is_abandoned = true;
        rule->cancel();
    }
};

/// Masks and jump-forward tokens depend on tokens that are known before a batch is run. So threads
/// of its own find those of the batch's sequences beside the model's run. What one of them throws
/// is thrown again where the mask is asked for. Under the step's lock.
///
/// A stranger's grammar may take long, and others share the step. So a step waits for all grammars
/// together no longer than limits.step_wait. What is not found by then is found during later steps,
/// while the sequence waits (TokenStep). Its request is slow from then on: no step waits for it,
/// and one thread of low priority serves all slow requests, alternately. A slow request whose work
/// takes less than step_wait is not slow any more. Work that takes more than limits.task_time is
/// cancelled.
class GrammarAhead {
public:
    /// So many threads work beside the model, and one more while the step waits. They start with
    /// the first grammar.
    GrammarAhead(size_t num_threads, const GrammarLimits& limits);
    /// Cancels what is left.
    ~GrammarAhead();

    /// A step begins, which may wait anew.
    void begin_step();
    /// Begins to find the masks of the batch's next tokens, but of sequences with drafts: each of
    /// those masks needs the token before it, which is not chosen yet.
    void find_masks(const Batch& batch);
    /// Waits until they are found, or the step has waited enough.
    void wait_for_masks(const Batch& batch);
    /// Whether the sequence's next token can be chosen without waiting for a grammar.
    bool has_mask(const SequenceState& sequence);
    /// The same, and begins to find it and waits as far as the step may.
    bool wait_for_mask(SequenceState& sequence);
    /// Begins to find the tokens that must come next in a sequence that is no beam.
    void find_jump_forward(SequenceState& sequence);
    /// Whether they are found; waits as far as the step may.
    bool wait_for_jump_forward(const SequenceState& sequence);
    /// Waits until one of these sequences, of which there are some, has its mask, or the step
    /// waited enough. Slow ones count.
    void wait_for_any(const std::vector<SequenceState*>& sequences);

private:
    using Lock = std::unique_lock<std::mutex>;

    struct Worker {
        std::thread thread = {};
        pid_t number = 0;                                  // 0: it has not begun
        std::shared_ptr<GrammarWork> work = {};            // that it works at; null: none
        std::chrono::steady_clock::time_point began = {};  // with that
        std::chrono::nanoseconds used_before{0};           // processor time, when it began
        bool is_slow = false;                              // serves slow requests
        bool has_ended = false;                            // is to be joined
    };

    enum class Wanted { MASK, JUMP_FORWARD };
    void find(SequenceState& sequence, Wanted wanted);
    static bool is_found(const GrammarWork& work, const SequenceState& sequence, Wanted wanted);
    /// Whether the sequence, which has work, has what is wanted; waits as far as the step may.
    bool wait_for(const SequenceState& sequence, Wanted wanted);
    /// Waits until so many works that are marked as awaited are done.
    void wait(Lock& lock, size_t num_awaited);
    void enqueue(const std::shared_ptr<GrammarWork>& work);
    void start_worker();

    void serve(Worker& worker);
    /// Null: there is nothing for it.
    std::shared_ptr<GrammarWork> take(const Worker& worker);
    std::shared_ptr<GrammarWork> take_slow();
    void do_work(Lock& lock, Worker& worker, const std::shared_ptr<GrammarWork>& work);
    /// Moves work that took too long, and its request, to the slow ones, and ends what takes
    /// longer.
    void check_workers();
    void make_slow(Worker& worker);
    size_t num_workers(bool slow) const;

    const size_t m_num_threads;
    const GrammarLimits m_limits;
    std::chrono::nanoseconds m_left{0};                     // that the step may wait
    std::vector<std::shared_ptr<GrammarWork>> m_waits_for;  // kept for its memory

    std::mutex m_mutex;  // guards what follows
    std::condition_variable m_has_work, m_is_done;
    std::list<Worker> m_workers;
    std::deque<std::shared_ptr<GrammarWork>> m_queue, m_slow_queue;
    const GrammarPace* m_latest_slow = nullptr;  // served last; compared, not read
    size_t m_num_active = 0;                     // workers that are not slow and have work
    size_t m_most_active;
    size_t m_num_awaited = 0;
    bool m_ends = false;
};

}  // namespace pagewheel
