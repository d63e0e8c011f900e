// The step loop: requests in, tokens out.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pagewheel/cache_view.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/prefix_selection.hpp"
#include "pagewheel/statistics.hpp"
#include "runner/model.hpp"
#include "runtime/admission.hpp"
#include "runtime/drafting.hpp"
#include "runtime/eviction_manager.hpp"
#include "runtime/grammar_masks.hpp"
#include "runtime/output.hpp"
#include "runtime/requests.hpp"
#include "runtime/statistics.hpp"
#include "runtime/token_map.hpp"
#include "runtime/token_step.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// What an engine is made of besides its config.
struct EngineParts {
    std::unique_ptr<Model> model;
    size_t context_length = 0;                  ///< positions the model was made for; 0: not known
    GeneratedText::Decoders decoders;           ///< turn tokens into text
    Admission::FindRules find_rules;            ///< what texts of a config are in tokens
    Admission::CompileGrammar compile_grammar;  ///< of a config's structured_output_config
    Admission::Encode encode;                   ///< of a config's prediction
    /// Null: HeadDrafter or ModelDrafter with a draft model, SuffixDrafter without.
    std::unique_ptr<Drafter> drafter;
    std::unique_ptr<Model> draft_model;  ///< null: none; it may be a head of the model's
    size_t draft_context_length = 0;     ///< as context_length
    /// Null: the draft model has the model's vocabulary.
    std::shared_ptr<const VocabularyMaps> vocabulary_maps;
    GrammarLimits grammar_limits = {};  ///< of what a step and a sequence may take
    std::function<Clock::time_point()> now = Clock::now;  ///< of deadlines and steps
};

/// Makes steps, one at a time, of parts that do one thing each. Its methods may be called from any
/// thread. Of the caller's code, eviction policies and logits processors run inside a step: what
/// needs the step's lock throws there. Callbacks of handles run after it.
class Engine {
public:
    Engine(EngineParts parts, const SchedulerConfig& config);
    /// Cancels what is left.
    ~Engine();

    /// Throws as ContinuousBatchingPipeline::add_request does. Without an id the request has none,
    /// and takes none.
    std::shared_ptr<GenerationHandle::State> submit(std::optional<uint64_t> id,
                                                    const std::vector<int64_t>& prompt,
                                                    const GenerationConfig& config);
    bool has_work() const;
    RequestQueue& request_queue() { return *m_queue; }
    /// What fails, ends: a policy that throws its request; the model's run, or the sampling after
    /// it, the requests of that batch. Anything else leaves accounts that cannot be trusted: every
    /// request ends with PipelineFailed, and submit(), step(), view_cache() and prefixes() throw it
    /// from then on. The exception passes, but for a policy's; so does what a handle's callback
    /// throws.
    StepStatistics step();
    PipelineStatistics statistics() const;
    /// Does what ContinuousBatchingPipeline::get_cache_view() does.
    CacheView view_cache(size_t most_sequences, std::optional<uint64_t> evicted_of);

    class Prefixes;
    /// No step is made while it lives. Throws InvalidArgument if there is no prefix cache.
    Prefixes prefixes();

private:
    /// Null where nothing can be drafted.
    std::unique_ptr<Drafting> make_drafting(EngineParts& parts, const SchedulerConfig& config);
    /// Holds the step's lock and marks the thread as holding it. Throws Error if it
    /// holds it already and in a child that fork() made, PipelineFailed once the engine has failed.
    class StepLock {
    public:
        explicit StepLock(Engine& engine);

    private:
        static std::mutex& checked_mutex(Engine& engine);

        const std::lock_guard<std::mutex> m_lock;
        const ThreadRole m_role;
    };

    /// Makes a step under the lock. Returns what failed, if anything did.
    std::exception_ptr make_step();
    std::exception_ptr attempt_step();
    void fail(const char* cause) noexcept;
    /// Takes in what was submitted.
    void accept();
    void handle_aborts();
    const Batch& schedule();
    /// Returns what failed, if anything did.
    std::exception_ptr compute(const Batch& batch);
    /// What `work` threw, if it did: then the batch's requests have ended with it.
    template <class Work>
    std::exception_ptr attempt(const Batch& batch, Work&& work);
    void cancel_batch(const Batch& batch, const std::string& error);
    /// Evicts what is due of the batch's requests; a policy's failure ends its request alone.
    void evict(const Batch& batch);
    void account();

    const std::shared_ptr<RequestQueue> m_queue;
    const std::unique_ptr<Model> m_model;
    const bool m_has_prefixes;
    const std::function<Clock::time_point()> m_now;

    std::mutex m_step_mutex;  // guards what follows, but what is said to be any thread's
    Scheduler m_scheduler;
    std::unique_ptr<EvictionManager> m_eviction;  // null: nothing is evicted
    StepStatistics m_step;                        // the one being made
    Output m_output;
    Admission m_admission;  // any thread's
    Requests m_requests;
    GrammarMasks m_grammars;
    TokenStep m_tokens;
    std::unique_ptr<Drafting> m_drafting;
    StepRecorder m_recorder;         // any thread's
    RequestQueue::Contents m_taken;  // out of the queue
    std::string m_log_line;          // to be written without the lock
};

/// The prefix cache, as PrefixCache has it, with the step's lock.
class Engine::Prefixes {
public:
    explicit Prefixes(Engine& engine);
    /// Takes down what changed.
    ~Prefixes();
    Prefixes(const Prefixes&) = delete;
    Prefixes& operator=(const Prefixes&) = delete;

    size_t num_tokens() const;
    std::map<std::string, size_t> num_tokens_by_salt() const;
    bool has(const PrefixKey& key, const std::vector<int64_t>& tokens) const;
    /// Pins the tokens if all of them are cached; how many are, from the first on.
    size_t pin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    bool unpin(const PrefixKey& key, const std::vector<int64_t>& tokens);
    void clear(const std::optional<std::set<std::string>>& salts);
    void save(const std::filesystem::path& path, const PrefixSelection& selection) const;
    size_t load(const std::filesystem::path& path);

private:
    /// Throws InvalidArgument if one of the requests would not fit beside `num_pinned` blocks.
    void check_room(size_t num_tokens, size_t num_pinned) const;

    const StepLock m_lock;
    Engine& m_engine;
};

}  // namespace pagewheel
