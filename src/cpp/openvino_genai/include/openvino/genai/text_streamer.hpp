// Tokens as text, handed to a callback.
#pragma once

#include "openvino/genai/streamer_base.hpp"
#include "openvino/genai/tokenizer.hpp"
#include "pagewheel/streamer.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::TextStreamer;

}  // namespace pagewheel::openvino_genai
