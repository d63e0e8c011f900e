// The messages of a conversation.
#pragma once

#include "openvino/genai/names.hpp"
