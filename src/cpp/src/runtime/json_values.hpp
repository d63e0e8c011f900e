// JSON values as the types of generation parameters: exactly, or not at all.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "pagewheel/generation_config.hpp"

namespace pagewheel {

/// `value` for a message: whole if it is short, for it may be of any size and depth.
std::string shown(const nlohmann::json& value);

// Each takes a value that its type holds, without rounding, and else throws InvalidArgument
// that says what is allowed.
void read_value(const nlohmann::json& value, bool& out);
void read_value(const nlohmann::json& value, int& out);
void read_value(const nlohmann::json& value, size_t& out);
/// A token id, 0 or more.
void read_value(const nlohmann::json& value, int64_t& out);
void read_value(const nlohmann::json& value, float& out);
/// A time, above 0. JSON has no infinity: a timeout that never comes is written "inf".
void read_value(const nlohmann::json& value, std::optional<float>& out);
void read_value(const nlohmann::json& value, std::optional<uint64_t>& out);
void read_value(const nlohmann::json& value, std::string& out);
void read_value(const nlohmann::json& value, std::set<int64_t>& out);
void read_value(const nlohmann::json& value, std::set<std::string>& out);
/// An object, whose keys are the ids. What JSON has no number for is written "-inf", which is a
/// ban, "inf" and "nan", which validate() refuses by their token.
void read_value(const nlohmann::json& value, TokenBiases& out);
void read_value(const nlohmann::json& value, TokenSequences& out);
void read_value(const nlohmann::json& value, StopCriteria& out);

}  // namespace pagewheel
