// What pagewheel has as openvino_genai has it, and what is refused because pagewheel has it not.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "openvino/genai/visibility.hpp"
#include "pagewheel/cache_eviction_config.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/json_container.hpp"
#include "pagewheel/perf_metrics.hpp"
#include "pagewheel/properties.hpp"
#include "pagewheel/results.hpp"
#include "pagewheel/statistics.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/structured_output.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::AdaptiveRKVConfig;
using pagewheel::AggregationMode;
using pagewheel::ChatHistory;
using pagewheel::DecodedResults;
using pagewheel::EncodedGenerationResult;
using pagewheel::EncodedResults;
using pagewheel::GenerationFinishReason;
using pagewheel::GenerationOutput;
using pagewheel::GenerationOutputs;
using pagewheel::GenerationResult;
using pagewheel::GenerationStatus;
using pagewheel::JsonContainer;
using pagewheel::KVCrushAnchorPointMode;
using pagewheel::KVCrushConfig;
using pagewheel::MeanStdPair;
using pagewheel::PerfMetrics;
using pagewheel::PipelineMetrics;
using pagewheel::RawPerfMetrics;
using pagewheel::SDPerfMetrics;
using pagewheel::SDPerModelsPerfMetrics;
using pagewheel::StopCriteria;
using pagewheel::StreamerBase;
using pagewheel::StreamerVariant;
using pagewheel::StreamingStatus;
using pagewheel::StructuralTagItem;
using pagewheel::StructuralTagsConfig;
using pagewheel::SummaryStats;
using pagewheel::TextStreamer;
using pagewheel::TokenizedInputs;
// max_new_tokens(5) and so on: a property for each parameter; and streamer.
using namespace pagewheel::properties;

using GenerationHandleImpl = pagewheel::GenerationHandle;
/// The last copy dropped cancels the request.
using GenerationHandle = std::shared_ptr<GenerationHandleImpl>;
/// What a callback of text answers; true is STOP.
using CallbackTypeVariant = std::variant<bool, StreamingStatus>;
/// What pipelines with two models have besides.
using ExtendedPerfMetrics = PerfMetrics;

[[noreturn]] inline void refuse_missing(const std::string& what, const char* feature) {
    throw InvalidArgument(what + ": pagewheel has no " + feature + " yet");
}

}  // namespace pagewheel::openvino_genai
