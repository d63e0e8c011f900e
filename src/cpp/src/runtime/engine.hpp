// The step loop: requests in, tokens out.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "pagewheel/continuous_batching_pipeline.hpp"
#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "runtime/cache_keeper.hpp"
#include "runtime/model_runner.hpp"
#include "runtime/request.hpp"
#include "scheduling/scheduler.hpp"

namespace pagewheel {

/// What requests are checked against.
struct ModelLimits {
    size_t context_length = 0;  ///< positions the model was made for; 0: not known
    size_t vocabulary = 0;
};

/// What the latest step did, times in microseconds.
struct StepRecord {
    size_t num_sequences = 0;  ///< that computed something
    size_t num_generated_tokens = 0;
    float infer_time = 0;
    float sampling_time = 0;
};

/// Owns all requests. submit(), has_work() and metrics() are safe from any thread; step() is called
/// from one thread at a time.
class Engine {
public:
    /// `decode` turns tokens into text, special tokens included; stop strings are matched on it.
    Engine(std::unique_ptr<ModelRunner> runner, const SchedulerConfig& config,
           const ModelLimits& limits, IncrementalDetokenizer::Decode decode);

    /// Throws std::invalid_argument as ContinuousBatchingPipeline::add_request does.
    std::shared_ptr<GenerationHandle::State> submit(uint64_t id, const std::vector<int64_t>& prompt,
                                                    const GenerationConfig& config);
    bool has_work() const;
    /// If the model fails, the requests of that batch are cancelled, their blocks freed, and the
    /// exception passes.
    void step();
    const StepRecord& latest_step() const { return m_latest_step; }
    PipelineMetrics metrics() const;

private:
    void check_prompt(const std::vector<int64_t>& prompt, const GenerationConfig& config) const;
    size_t max_tokens(size_t prompt_length, const GenerationConfig& config) const;
    std::unique_ptr<SequenceRecord> make_record(Request& request, size_t index,
                                                const std::vector<int64_t>& prompt) const;
    void accept_submitted();
    void honour_wishes();
    void compute(const Batch& batch);
    /// What is due of the batch's requests; a policy's failure ends its request alone.
    void evict(const Batch& batch);
    void sample(const Batch& batch, const Logits& logits);
    /// Log-probabilities of the prompt's tokens, from rows [first_row, first_row + num_rows).
    void record_prompt(SequenceRecord& record, const Logits& logits, size_t first_row,
                       size_t num_rows);
    /// The other sequences of a request whose prompt is computed: each samples from the same
    /// logits.
    void fork_siblings(SequenceRecord& first, const std::vector<float>& logits);
    void append_token(SequenceRecord& record, float* logits);
    GenerationFinishReason finish_reason(SequenceRecord& record, int64_t token) const;
    void publish(SequenceRecord& record, const SampledToken& token, GenerationFinishReason reason);
    void finish(SequenceRecord& record);
    void end(Request& request, GenerationStatus status);
    void forget_ended();
    void update_metrics();

    std::unique_ptr<ModelRunner> m_runner;
    std::unique_ptr<CacheKeeper> m_keeper;  // null: nothing is evicted
    ModelLimits m_limits;
    Scheduler m_scheduler;
    IncrementalDetokenizer::Decode m_decode;
    std::vector<std::unique_ptr<Request>> m_requests;  // being worked on
    StepRecord m_latest_step;
    std::vector<float> m_usage;  // percent of the blocks, of the last steps; a ring
    size_t m_num_steps = 0;

    mutable std::mutex m_mutex;  // guards what follows
    std::vector<std::unique_ptr<Request>> m_submitted;
    std::set<uint64_t> m_ids;  // of all requests that are not finished
    PipelineMetrics m_metrics;
};

}  // namespace pagewheel
