// JSON values of messages, tools and extra context.
#pragma once

#include "openvino/genai/names.hpp"
