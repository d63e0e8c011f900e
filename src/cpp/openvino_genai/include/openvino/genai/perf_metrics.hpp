// Time measured during a generate() call.
#pragma once

#include "openvino/genai/visibility.hpp"
#include "pagewheel/perf_metrics.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::MeanStdPair;
using pagewheel::PerfMetrics;
using pagewheel::RawPerfMetrics;
using pagewheel::SummaryStats;

/// What pipelines with two models would have besides.
using ExtendedPerfMetrics = PerfMetrics;

}  // namespace pagewheel::openvino_genai
