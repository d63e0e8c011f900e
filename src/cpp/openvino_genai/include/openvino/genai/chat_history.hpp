// The messages of a conversation.
#pragma once

#include "openvino/genai/json_container.hpp"
#include "openvino/genai/visibility.hpp"
#include "pagewheel/chat_history.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::ChatHistory;

}  // namespace pagewheel::openvino_genai
