// What generate() returns.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "pagewheel/generation_handle.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Per prompt num_return_sequences elements, prompts in the order they were given.
struct EncodedResults {
    std::vector<std::vector<int64_t>> tokens;
    std::vector<float> scores;
    std::vector<GenerationFinishReason> finish_reasons;
    PerfMetrics perf_metrics;                  ///< of the call
    std::vector<PerfMetrics> request_metrics;  ///< of each prompt
    /// Of both models; null without a draft model.
    std::shared_ptr<SDPerModelsPerfMetrics> extended_perf_metrics;
};

struct DecodedResults {
    std::vector<std::string> texts;
    std::vector<float> scores;
    std::vector<GenerationFinishReason> finish_reasons;
    /// What GenerationConfig::parsers, or a TextParserStreamer, made of each text: JSON objects.
    /// Empty without them.
    std::vector<std::string> parsed;
    PerfMetrics perf_metrics;                  ///< of the call
    std::vector<PerfMetrics> request_metrics;  ///< of each prompt
    /// Of both models; null without a draft model.
    std::shared_ptr<SDPerModelsPerfMetrics> extended_perf_metrics;

    /// The text; of several a line each, with its score before it.
    PAGEWHEEL_API std::string to_string() const;
    operator std::string() const { return to_string(); }
    operator std::vector<std::string>() const { return texts; }
};
PAGEWHEEL_API std::ostream& operator<<(std::ostream& stream, const DecodedResults& results);

/// Results of one request of a ContinuousBatchingPipeline.
struct EncodedGenerationResult {
    uint64_t m_request_id = 0;
    std::vector<std::vector<int64_t>> m_generation_ids;
    std::vector<float> m_scores;
    std::vector<GenerationFinishReason> m_finish_reasons;
    GenerationStatus m_status = GenerationStatus::RUNNING;
    PerfMetrics perf_metrics;     ///< of the call
    PerfMetrics request_metrics;  ///< of this request: its tokens and their times
    std::shared_ptr<SDPerModelsPerfMetrics> extended_perf_metrics;  ///< as DecodedResults'
};

struct GenerationResult {
    uint64_t m_request_id = 0;
    std::vector<std::string> m_generation_ids;
    std::vector<std::string> get_generation_ids() const { return m_generation_ids; }
    std::vector<std::string> parsed;  ///< as DecodedResults::parsed
    std::vector<float> m_scores;
    std::vector<GenerationFinishReason> m_finish_reasons;
    GenerationStatus m_status = GenerationStatus::RUNNING;
    PerfMetrics perf_metrics;     ///< of the call
    PerfMetrics request_metrics;  ///< of this request: its tokens and their times
    std::shared_ptr<SDPerModelsPerfMetrics> extended_perf_metrics;  ///< as DecodedResults'
};

}  // namespace pagewheel
