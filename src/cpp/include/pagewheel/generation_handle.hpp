// The caller's end of one request.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
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

/// NONE also where the request was cancelled or timed out. TOOL_CALL: a streamer said so. ERROR:
/// the grammar of structured_output_config could not go on, and the text is cut short.
enum class GenerationFinishReason { NONE = 0, STOP = 1, LENGTH = 2, TOOL_CALL = 3, ERROR = 4 };

struct TokenLogProb {
    int64_t id = 0;
    float log_prob = 0.0f;
    std::string bytes;  ///< of the token's text: by itself it need not be UTF-8
};

/// A token, one of stop_strings, or an error's text.
using StopReason = std::variant<std::monostate, int64_t, std::string>;

struct GenerationOutput {
    std::vector<int64_t> generated_ids;
    /// Log-probabilities of generated_ids under the distribution that was drawn from; 0 of greedy
    /// decoding, unless logprobs was asked.
    std::vector<float> generated_log_probs;
    /// Log-probabilities of the prompt from its second token on, in the first sequence; needs echo
    /// and logprobs.
    std::vector<float> prompt_log_probs;
    /// Where logprobs was asked: for each of generated_ids the so many likeliest tokens, best
    /// first, and behind them the generated one if it is not among them. Of the softmax of the
    /// logits after the processors (penalties, bans), before temperature and filters, so that they
    /// need not equal generated_log_probs of sampling. Of beam search without diversity_penalty.
    /// Tokens of probability 0 are left out.
    std::vector<std::vector<TokenLogProb>> top_log_probs;
    /// The likeliest tokens for each of prompt_log_probs, by the model's logits as they are.
    std::vector<std::vector<TokenLogProb>> prompt_top_log_probs;
    float score = 0.0f;  ///< sum of log-probabilities; of beam search, its score
    /// The text of generated_ids, where it was asked: up to the first stop string, without special
    /// tokens unless skip_special_tokens is false, and never half a character of UTF-8, so that the
    /// last of it may come with later tokens.
    std::string text;
    /// Where text was asked for: so many of the sequence's tokens, from its first one on, have a
    /// part in the text that was given so far. Those of a stop string that is cut off have none.
    size_t num_text_tokens = 0;
    GenerationFinishReason finish_reason = GenerationFinishReason::NONE;
    /// With a finish_reason of STOP: the token of eos_token_id or stop_token_ids, or the one of
    /// stop_strings that ended the sequence. The token comes first if both do. Of several strings
    /// that are complete with one token the one that begins first counts, and of those that begin
    /// at one place the longest. With ERROR: why no token may come. Beams have none then.
    StopReason stop_reason;
};
/// Outputs by the index of the sequence within its request, 0 .. num_return_sequences - 1.
using GenerationOutputs = std::map<uint64_t, GenerationOutput>;

/// Reads what one request generates; its methods may be called from any thread while another steps,
/// and from callbacks. Once the handle that add_request() gave is dropped, the request is
/// cancelled. In a child that fork() made every method throws Error.
class PAGEWHEEL_API GenerationHandle {
public:
    struct State;  // internal: runtime/request.hpp
    explicit GenerationHandle(std::shared_ptr<State> state);

    /// That it was stopped or cancelled is said at once, though a step is still to do it.
    GenerationStatus get_status() const;
    bool is_stopped() const { return get_status() == GenerationStatus::STOP; }
    bool is_cancelled() const { return get_status() == GenerationStatus::CANCEL; }
    /// New tokens wait to be read, a reason to finish, or the rest of a text that is being read.
    bool can_read() const;
    /// Tokens generated since the last read, and a finish reason once. Waits until there are some
    /// or the request is over, and is empty then; it makes steps meanwhile, unless the thread of
    /// start() does. `with_text`: and the text since the last read with text; what was held back
    /// comes when the sequence is over, also without tokens. It is decoded once, by whoever asks
    /// first, while steps go on.
    /// Throws Error after stop(), cancel() or drop(); and with the reason, where the
    /// request was cancelled because a step, or an eviction policy or logits processor of the
    /// caller's failed, and all was read.
    GenerationOutputs read(bool with_text = false);
    /// read() until the request is over: what of each sequence was not read, the best score first.
    std::vector<GenerationOutput> read_all(bool with_text = false);
    /// read() of what is there, without waiting, also after stop() or cancel(); empty if nothing
    /// is.
    GenerationOutputs read_available(bool with_text = false);
    /// Everything generated so far, in the order of the sequences, read or not. Throws where the
    /// request was cancelled because something failed, as read() does.
    std::vector<GenerationOutput> outputs_so_far(bool with_text = false) const;
    /// What read() and read_all() wait for.
    enum class Until { OUTPUT, END };
    /// If it is not there: makes a step, or waits a moment for the thread that does. Whether it
    /// did.
    bool advance(Until until);
    /// Waits until there is something to read or the request is over, at most `timeout`; whether
    /// so. Where it would have to wait and can_wait() is false, throws Error.
    bool wait(std::chrono::microseconds timeout) const;
    /// False in callbacks on the thread that steps, which would wait for itself.
    bool can_wait() const;
    /// Calls back once, when there is something to read or the request is over: from the thread
    /// that steps, after its step, or at once from here. The callback may call everything. All that
    /// wait are called, in their order. What one throws passes to the caller of step() or
    /// generate(); a thread of start() drops it. Until::END: only when the request is over.
    void notify_once(std::function<void()> callback, Until until = Until::OUTPUT);
    /// End at the next step and keep what there is; `reason` is that of the sequences it ends.
    void stop(GenerationFinishReason reason = GenerationFinishReason::NONE);
    /// End at the next step; the cache's blocks are freed then.
    void cancel();
    /// cancel(), and what was generated up to now counts as read.
    void drop();
    PerfMetrics get_perf_metrics() const;

private:
    void check_open() const;

    std::shared_ptr<State> m_state;
};

}  // namespace pagewheel
