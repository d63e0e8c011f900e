// JSON values of messages, tools and extra context.
#pragma once

#include "openvino/genai/visibility.hpp"
#include "pagewheel/json_container.hpp"

namespace pagewheel::openvino_genai {

using pagewheel::JsonContainer;

}  // namespace pagewheel::openvino_genai
