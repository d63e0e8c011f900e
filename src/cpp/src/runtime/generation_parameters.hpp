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

/// Readers by the keys of generation_config.json: the parameters, and early_stopping, which is
/// transformers' name for stop_criteria.
const std::map<std::string, ParameterReader>& parameter_readers();

/// `value` for a message: whole if it is short, for it may be of any size and depth.
std::string shown(const nlohmann::json& value);

}  // namespace pagewheel
