// The caller's end of one request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

enum class GenerationStatus {
    RUNNING = 0,
    FINISHED = 1,  ///< by a stop condition or a length
    IGNORED = 2,   ///< kept for compatibility: pagewheel refuses what cannot fit with an exception
    CANCEL = 3,    ///< by cancel()
    STOP = 4,      ///< by stop()
    TIMEOUT = 5,   ///< by GenerationConfig::timeout
};

enum class GenerationFinishReason { NONE = 0, STOP = 1, LENGTH = 2 };

struct GenerationOutput {
    std::vector<int64_t> generated_ids;
    /// As long as generated_ids; 0 unless logprobs was asked.
    std::vector<float> generated_log_probs;
    /// Of the prompt from its second token on, in the first sequence; needs echo and logprobs.
    std::vector<float> prompt_log_probs;
    float score = 0.0f;  ///< sum of log-probabilities; 0 unless logprobs was asked
    /// Of generated_ids, where it was asked: up to the first stop string, without special tokens,
    /// and never half a character of UTF-8, so that the last of it may come with later tokens.
    std::string text;
    GenerationFinishReason finish_reason = GenerationFinishReason::NONE;
};
/// By index of the sequence within its request, 0 .. num_return_sequences - 1.
using GenerationOutputs = std::map<uint64_t, GenerationOutput>;

/// Reads what one request generates; its methods may be called from any thread while another steps,
/// and from callbacks. The request goes on if the handle is dropped. In a child that fork() made
/// every method throws std::runtime_error.
class PAGEWHEEL_API GenerationHandle {
public:
    struct State;  // internal: runtime/handle_state.hpp
    explicit GenerationHandle(std::shared_ptr<State> state);

    GenerationStatus get_status() const;
    /// New tokens wait to be read, a reason to finish, or the rest of a text that is being read.
    bool can_read() const;
    /// Tokens generated since the last read, and a finish reason once; empty if none. `with_text`:
    /// and the text since the last read with text; what was held back comes when the sequence is
    /// over, also without tokens. It is decoded once, by whoever asks first, while steps go on.
    /// Where the request was cancelled because a step or an eviction policy of the caller's failed,
    /// and all was read, throws std::runtime_error with the reason.
    GenerationOutputs read(bool with_text = false);
    /// Everything generated so far, in the order of the sequences. Throws where the request was
    /// cancelled because something failed, as read() does.
    std::vector<GenerationOutput> read_all(bool with_text = false) const;
    /// Until there is something to read or the request is over, at most `timeout`; whether so.
    /// Where it would have to wait and can_wait() is false, throws std::runtime_error.
    bool wait(std::chrono::microseconds timeout) const;
    /// False in callbacks on the thread that steps, which would wait for itself.
    bool can_wait() const;
    /// Calls back once, when there is something to read or the request is over: from the thread
    /// that steps, after its step, or at once from here. The callback may call everything. All that
    /// wait are called, in their order. What one throws passes to the caller of step() or
    /// generate(); a thread of start() drops it.
    void notify_once(std::function<void()> callback);
    /// End at the next step and keep what there is; `reason` is that of the sequences it ends.
    void stop(GenerationFinishReason reason = GenerationFinishReason::NONE);
    /// End at the next step; the cache's blocks are freed then.
    void cancel();
    /// cancel(), and what was generated up to now counts as read.
    void drop();
    PerfMetrics get_perf_metrics() const;

private:
    std::shared_ptr<State> m_state;
};

}  // namespace pagewheel
