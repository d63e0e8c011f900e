// Time measured during a generate() call.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

struct MeanStdPair {
    float mean = -1.0f;  ///< -1 where nothing was measured
    float std = -1.0f;
};

struct SummaryStats {
    float mean = -1.0f;  ///< -1 where nothing was measured, as the others
    float std = -1.0f;
    float min = -1.0f;
    float max = -1.0f;
};

/// Samples in microseconds, before any statistics.
struct RawPerfMetrics {
    std::vector<float> generate_durations;
    std::vector<float> tokenization_durations;
    std::vector<float> detokenization_durations;
    std::vector<float> chat_template_durations;
    std::vector<float> m_times_to_first_token;  ///< per request
    std::vector<double> m_new_token_times;      ///< time stamps, steady clock
    std::vector<float> token_infer_durations;   ///< per step, model inference
    std::vector<size_t> m_batch_sizes;          ///< tokens generated per step
    /// Per token after those of the first step: a step's tokens share its time. In a call's metrics
    /// they are the tokens of all its requests, in a request's those of each sequence.
    std::vector<float> m_durations;
    std::vector<float> inference_durations;    ///< per generate() call
    std::vector<float> sampling_durations;     ///< per step
    std::vector<float> queue_durations;        ///< per request, until its first step
    std::vector<float> grammar_compile_times;  ///< per request that has a grammar
    std::vector<float> draft_durations;        ///< per step of a draft model
    std::vector<size_t> draft_batch_sizes;     ///< drafts that came of each of them
};

/// Statistics in milliseconds (throughput: tokens per second). Sums (operator+) join samples.
class PAGEWHEEL_API PerfMetrics {
public:
    RawPerfMetrics raw_metrics;
    float load_time = 0.0f;  ///< of the pipeline, milliseconds
    /// llguidance's milliseconds to prepare the vocabulary; empty without a grammar.
    std::map<std::string, float> grammar_compiler_init_times;
    size_t num_generated_tokens = 0;
    size_t num_input_tokens = 0;
    size_t num_prefix_cache_hit_tokens = 0;  ///< of the input tokens, not computed again
    size_t num_drafted_tokens = 0;           ///< guessed, and checked by the model
    size_t num_accepted_tokens = 0;          ///< of them, those that were right: steps saved

    float get_load_time() const { return load_time; }
    size_t get_num_generated_tokens() const { return num_generated_tokens; }
    size_t get_num_input_tokens() const { return num_input_tokens; }
    size_t get_num_prefix_cache_hit_tokens() const { return num_prefix_cache_hit_tokens; }
    size_t get_num_drafted_tokens() const { return num_drafted_tokens; }
    size_t get_num_accepted_tokens() const { return num_accepted_tokens; }
    /// Time to first token.
    MeanStdPair get_ttft() const { return statistics(raw_metrics.m_times_to_first_token); }
    /// Time per output token after the first.
    MeanStdPair get_tpot() const { return statistics(raw_metrics.m_durations); }
    /// Inference time per output token.
    MeanStdPair get_ipot() const { return statistics(raw_metrics.token_infer_durations); }
    MeanStdPair get_throughput() const { return throughput(get_tpot()); }
    MeanStdPair get_generate_duration() const { return statistics(raw_metrics.generate_durations); }
    MeanStdPair get_inference_duration() const {
        return statistics(raw_metrics.inference_durations);
    }
    MeanStdPair get_tokenization_duration() const {
        return statistics(raw_metrics.tokenization_durations);
    }
    MeanStdPair get_detokenization_duration() const {
        return statistics(raw_metrics.detokenization_durations);
    }
    MeanStdPair get_chat_template_duration() const {
        return statistics(raw_metrics.chat_template_durations);
    }
    MeanStdPair get_sampling_duration() const { return statistics(raw_metrics.sampling_durations); }
    /// Time of a request until its first step.
    MeanStdPair get_queue_duration() const { return statistics(raw_metrics.queue_durations); }
    SummaryStats get_grammar_compile_time() const;
    std::map<std::string, float> get_grammar_compiler_init_times() const {  ///< by backend
        return grammar_compiler_init_times;
    }

    PerfMetrics& operator+=(const PerfMetrics& other);
    PerfMetrics operator+(const PerfMetrics& other) const { return PerfMetrics(*this) += other; }

protected:
    static MeanStdPair statistics(const std::vector<float>& microseconds);
    static MeanStdPair throughput(const MeanStdPair& time_per_token);
};

/// Metrics of one of two models by its steps, the first of which gave the first token:
/// raw_metrics.m_durations has their times, and m_batch_sizes the tokens that they gave.
class PAGEWHEEL_API SDPerfMetrics : public PerfMetrics {
public:
    /// Time of the second step.
    MeanStdPair get_ttst() const { return statistics(durations(1, 2)); }
    /// Time of a step from the third on.
    MeanStdPair get_latency() const { return statistics(durations(2)); }
    /// Time per token from the third step on.
    MeanStdPair get_tpot() const;
    MeanStdPair get_throughput() const { return throughput(get_tpot()); }

private:
    std::vector<float> durations(size_t begin, size_t end = size_t(-1)) const;
};

/// Metrics of a call of a pipeline with a draft model. Rates are NaN where there is nothing to
/// divide by.
class PAGEWHEEL_API SDPerModelsPerfMetrics : public SDPerfMetrics {
public:
    SDPerModelsPerfMetrics() = default;
    explicit SDPerModelsPerfMetrics(const PerfMetrics& call);

    SDPerfMetrics main_model_metrics, draft_model_metrics;

    size_t get_num_draft_tokens() const { return num_drafted_tokens; }  ///< checked by the model
    size_t get_num_rejected_tokens() const { return num_drafted_tokens - num_accepted_tokens; }
    /// All that the draft model has guessed, what was not checked included.
    size_t get_num_draft_processed_tokens() const {
        return draft_model_metrics.num_generated_tokens;
    }
    float get_draft_acceptance_rate() const;
    float get_draft_processed_to_candidate_ratio() const;
    float get_draft_to_main_inference_duration_ratio() const;

    SDPerModelsPerfMetrics& operator+=(const SDPerModelsPerfMetrics& other);
    SDPerModelsPerfMetrics operator+(const SDPerModelsPerfMetrics& other) const {
        return SDPerModelsPerfMetrics(*this) += other;
    }
};

}  // namespace pagewheel
