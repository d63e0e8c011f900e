// The caller's end of one request, and what it gives.
#pragma once

#include <memory>

#include "openvino/genai/generation_config.hpp"
#include "openvino/genai/perf_metrics.hpp"
#include "openvino/genai/visibility.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/results.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::EncodedGenerationResult;
using pagewheel::GenerationFinishReason;
using pagewheel::GenerationOutput;
using pagewheel::GenerationOutputs;
using pagewheel::GenerationResult;
using pagewheel::GenerationStatus;

using GenerationHandleImpl = pagewheel::GenerationHandle;
/// The last copy dropped cancels the request.
using GenerationHandle = std::shared_ptr<GenerationHandleImpl>;

}  // namespace pagewheel::openvino_genai
