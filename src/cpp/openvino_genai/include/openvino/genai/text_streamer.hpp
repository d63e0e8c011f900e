// Tokens as text, handed to a callback.
#pragma once

#include "openvino/genai/names.hpp"
