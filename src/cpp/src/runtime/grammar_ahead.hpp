// Masks of grammars, found while the model infers.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/request.hpp"
#include "scheduling/batch.hpp"

namespace pagewheel {

/// A mask depends on the tokens before it, which are known when a batch begins. So threads of its
/// own find those of the batch's sequences beside the model's run. What one of them throws is
/// thrown again where the mask is asked for. Under the step's lock.
class GrammarAhead {
public:
    /// The threads start with the first grammar.
    explicit GrammarAhead(size_t num_threads) : m_num_threads(num_threads) {}
    ~GrammarAhead();

    /// While it lives, the masks are being found: nothing may change the batch's sequences.
    class Work {
    public:
        Work(GrammarAhead& ahead, const Batch& batch) : m_ahead(ahead) { m_ahead.begin(batch); }
        ~Work() { m_ahead.finish(); }
        Work(const Work&) = delete;
        Work& operator=(const Work&) = delete;

    private:
        GrammarAhead& m_ahead;
    };

private:
    struct Task {
        GrammarRule* grammar;
        TokenHistory history;
    };

    void begin(const Batch& batch);
    /// Returns when all are done; takes part in it.
    void finish();
    void start_threads();
    void serve();
    /// Does one that nobody has taken, without the lock; false: there is none.
    bool do_next(std::unique_lock<std::mutex>& lock);

    const size_t m_num_threads;
    std::vector<std::thread> m_threads;
    std::vector<Task> m_next;  // of the batch that begins
    std::mutex m_mutex;        // guards what follows
    std::condition_variable m_has_work, m_is_done;
    std::vector<Task> m_tasks;  // kept for its memory
    size_t m_num_taken = 0, m_num_done = 0;
    bool m_ends = false;
};

}  // namespace pagewheel
