// Time measured during a generate() call.
#pragma once

#include "openvino/genai/names.hpp"
