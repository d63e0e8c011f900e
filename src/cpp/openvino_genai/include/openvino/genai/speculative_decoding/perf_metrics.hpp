// Metrics of a pipeline with a draft model.
#pragma once

#include "openvino/genai/names.hpp"
