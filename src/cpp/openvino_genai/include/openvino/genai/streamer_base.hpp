// Receiving tokens while they are generated.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "openvino/genai/visibility.hpp"
#include "pagewheel/properties.hpp"
#include "pagewheel/streamer.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::StreamerBase;
using pagewheel::StreamerVariant;
using pagewheel::StreamingStatus;

/// What a callback of text answers; true is STOP.
using CallbackTypeVariant = std::variant<bool, StreamingStatus>;

using pagewheel::properties::streamer;

}  // namespace pagewheel::openvino_genai
