// Metrics of draft models, which pagewheel does not have yet: no pipeline gives them.
#pragma once

#include <cstddef>

#include "openvino/genai/names.hpp"

namespace pagewheel::openvino_genai {

/// Metrics of one model. What was not measured is -1.
struct SDPerfMetrics : ExtendedPerfMetrics {
    MeanStdPair ttst, avg_latency;

    MeanStdPair get_ttst() const { return ttst; }
    MeanStdPair get_latency() const { return avg_latency; }
};

/// Metrics of both models.
struct SDPerModelsPerfMetrics : SDPerfMetrics {
    SDPerfMetrics main_model_metrics, draft_model_metrics;
    size_t num_accepted_tokens = 0;

    size_t get_num_accepted_tokens() const { return num_accepted_tokens; }
};

}  // namespace pagewheel::openvino_genai
