// What generation_config.json and validate() do with each parameter of generation_parameters.def.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

/// Sets a parameter to a value that may be null, which is its default. Throws InvalidArgument
/// that says what is allowed.
using ParameterReader = void (*)(const nlohmann::json& value, GenerationConfig& config);

/// By the keys of generation_config.json: the parameters, and what others call them: early_stopping
/// is transformers' for stop_criteria, min_tokens vLLM's for min_new_tokens.
const std::map<std::string, ParameterReader>& parameter_readers();

}  // namespace pagewheel
