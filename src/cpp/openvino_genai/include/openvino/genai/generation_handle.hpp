// The caller's end of one request, and what it gives.
#pragma once

#include "openvino/genai/generation_config.hpp"
#include "openvino/genai/names.hpp"
