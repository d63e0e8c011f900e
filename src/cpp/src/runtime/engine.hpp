// The step loop: requests in, tokens out.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/statistics.hpp"
#include "runtime/cache_keeper.hpp"
#include "runtime/inbox.hpp"
#include "runtime/model.hpp"
#include "runtime/request.hpp"
#include "runtime/thread_role.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// What requests are checked against.
struct ModelLimits {
    size_t context_length = 0;  ///< positions the model was made for; 0: not known
};

/// Owns all requests. Its methods may be called from any thread; steps are made one at a time. Of
/// the caller's code, eviction policies run inside a step: what needs the step's lock throws there.
/// Callbacks of handles run after it.
class Engine {
public:
    /// `decoders` turn tokens into the text that stop strings are matched on.
    Engine(std::unique_ptr<Model> model, const SchedulerConfig& config, const ModelLimits& limits,
           GeneratedText::Decoders decoders);
    /// Cancels what is left.
    ~Engine();

    /// Throws as ContinuousBatchingPipeline::add_request does. Without an id the request has none,
    /// and takes none.
    std::shared_ptr<GenerationHandle::State> submit(std::optional<uint64_t> id,
                                                    const std::vector<int64_t>& prompt,
                                                    const GenerationConfig& config);
    bool has_work() const;
    Inbox& inbox() { return *m_inbox; }
    /// What fails, ends: a policy that throws its request; the model's run, or the sampling after
    /// it, the requests of that batch. Anything else leaves accounts that cannot be trusted: every
    /// request ends with the cause, and submit(), step() and the prefix cache throw it from then
    /// on. The exception passes, but for a policy's; so does what a handle's callback throws.
    StepStatistics step();
    PipelineMetrics metrics() const;
    PipelineStatistics statistics() const;

    // ---- The prefix cache, as PrefixCache has it (engine_prefixes.cpp)
    size_t num_prefix_tokens();
    bool has_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens);
    /// Pins the tokens if all of them are cached; how many are, from the first on.
    size_t pin_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens);
    bool unpin_prefix(const PrefixKey& key, const std::vector<int64_t>& tokens);
    void clear_prefixes();
    void save_prefixes(const std::filesystem::path& path);
    size_t load_prefixes(const std::filesystem::path& path);

private:
    using Deadlines = std::set<std::pair<Clock::time_point, Request*>>;
    using States = std::vector<std::shared_ptr<GenerationHandle::State>>;

    /// Holds the step's lock and marks the thread as holding it. Throws std::runtime_error if it
    /// holds it already, in a child that fork() made, and once the engine has failed.
    class StepLock {
    public:
        explicit StepLock(Engine& engine);

    private:
        static std::mutex& checked_mutex(Engine& engine);

        const std::lock_guard<std::mutex> m_lock;
        const ThreadRole m_role;
    };

    // ---- Requests (engine_requests.cpp)
    void check_prompt(const std::vector<int64_t>& prompt, const GenerationConfig& config) const;
    size_t max_tokens(size_t prompt_length, const GenerationConfig& config) const;
    std::unique_ptr<SequenceRecord> make_record(Request& request, size_t index,
                                                const std::vector<int64_t>& prompt) const;
    void accept_submitted();
    /// Where pins took blocks since it was submitted.
    void limit_again(Request& request);
    StepLock lock_prefixes();
    void honour_wishes();
    void honour_deadlines();
    void begin(Request& request);
    void finish(SequenceRecord& record);
    void end(Request& request, GenerationStatus status,
             GenerationFinishReason reason = GenerationFinishReason::NONE,
             const std::string& error = {});
    /// What of it the caller sees. The scheduler is not asked.
    void tell_end(Request& request, GenerationStatus status, GenerationFinishReason reason,
                  const std::string& error);
    void forget_ended();
    void announce(Request& request);
    /// Those that are to be woken without the lock.
    States take_news();
    /// All of them; then throws the first thing that a callback threw.
    static void wake(const States& states);

    // ---- Steps (engine.cpp)
    /// Under the lock; what failed, if anything did.
    std::exception_ptr make_step();
    std::exception_ptr attempt_step();
    void fail(const std::string& cause) noexcept;
    /// What failed, if anything did.
    std::exception_ptr compute(const Batch& batch);
    /// What `work` threw, if it did: then the batch's requests have ended with it.
    template <class Work>
    std::exception_ptr attempt(const Batch& batch, Work&& work);
    /// What is due of the batch's requests; a policy's failure ends its request alone.
    void evict(const Batch& batch);
    void cancel_batch(const Batch& batch, const std::string& error);
    /// Ends the request with an error; its blocks are of no use to others.
    void cancel(Request& request, const std::string& error);
    void count_blocks();
    void record_step();
    void give_back_memory();

    // ---- Tokens (engine_tokens.cpp)
    /// Logits that no token can be chosen by end their request alone.
    void sample(const Batch& batch, const Logits& logits);
    void continue_sequence(SequenceRecord& record, float* logits);
    /// Log-probabilities of the prompt's tokens, from rows [first_row, first_row + num_rows).
    void record_prompt(SequenceRecord& record, const Logits& logits, size_t first_row,
                       size_t num_rows);
    /// The other sequences of a request whose prompt is computed: each samples from the same
    /// logits.
    void fork_siblings(SequenceRecord& first, const std::vector<float>& logits);
    void append_token(SequenceRecord& record, float* logits);
    GenerationFinishReason finish_reason(SequenceRecord& record, int64_t token);
    void publish(SequenceRecord& record, const SampledToken& token, GenerationFinishReason reason);
    /// A token came now, the sequence's first or not; the caller holds the state's lock.
    static void time_token(SequenceRecord& record, bool is_first);

    // ---- Beam search (engine_beams.cpp)
    /// A beam's logits are there; with those of the request's last beam the search advances.
    void score_beam(SequenceRecord& record, float* logits);
    void move_beams(Request& request, const BeamMoves& moves);
    void fork_beam(Request& request, size_t from, size_t to);
    bool completes_stop_string(const SequenceRecord& record, int64_t token);
    /// What the search has found, complete or not.
    void publish_beams(Request& request);

    const std::shared_ptr<Inbox> m_inbox;
    std::unique_ptr<Model> m_model;
    std::unique_ptr<CacheKeeper> m_keeper;  // null: nothing is evicted
    const ModelLimits m_limits;
    const size_t m_statistics_interval;
    const bool m_has_prefixes;
    GeneratedText::Decoders m_decoders;
    std::atomic<size_t> m_max_tokens{0};  // of a sequence, by the blocks there are

    std::mutex m_step_mutex;  // guards what follows, but the statistics
    Scheduler m_scheduler;
    std::vector<std::unique_ptr<Request>> m_requests;  // being worked on
    std::vector<Request*> m_ended;                     // of them, to be forgotten
    Deadlines m_deadlines;
    States m_news;                                      // to be woken
    std::vector<std::unique_ptr<Request>> m_submitted;  // taken out of the inbox
    std::vector<Wish> m_wishes;                         // the same
    StepStatistics m_step;                              // the one being made
    std::vector<float> m_usage;  // percent of the blocks, of the last steps; a ring
    double m_usage_sum = 0;

    mutable std::mutex m_statistics_mutex;  // guards what follows
    PipelineStatistics m_statistics;
    PipelineMetrics m_metrics;
};

}  // namespace pagewheel
