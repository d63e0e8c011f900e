// Receiving tokens while they are generated.
#pragma once

#include "openvino/genai/names.hpp"
