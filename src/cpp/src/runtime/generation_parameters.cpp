#include "runtime/generation_parameters.hpp"

#include <cmath>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "runtime/json_values.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;

// ---- Types and values in words.

const char* type_name(bool) {
    return "bool";
}
const char* type_name(int) {
    return "int";
}
const char* type_name(size_t) {
    return "int";
}
const char* type_name(int64_t) {
    return "int";
}
const char* type_name(float) {
    return "float";
}
const char* type_name(std::optional<float>) {
    return "float | None";
}
const char* type_name(std::optional<uint64_t>) {
    return "int | None";
}
const char* type_name(const std::string&) {
    return "str";
}
const char* type_name(const std::set<int64_t>&) {
    return "set[int]";
}
const char* type_name(const std::set<std::string>&) {
    return "set[str]";
}
const char* type_name(const TokenBiases&) {
    return "dict[int, float]";
}
const char* type_name(const TokenSequences&) {
    return "list[list[int]]";
}
const char* type_name(StopCriteria) {
    return "StopCriteria";
}

template <class T>
std::string in_words(const T& value) {
    if constexpr (std::is_arithmetic_v<T>)
        return concat(value);
    else
        return json(value).dump();
}
template <class T>
std::string in_words(const std::optional<T>& value) {
    return value ? in_words(*value) : "null";
}
/// Only as a default, which is empty: of its values validate() names those that are refused.
std::string in_words(const TokenBiases& value) {
    return value.empty() ? "{}" : concat("of ", value.size(), " tokens");
}
/// A salt keeps tenants apart: no message repeats it.
std::string in_words(const std::string& value) {
    return value.empty() ? "\"\"" : concat("a string of ", value.size(), " bytes");
}
std::string in_words(bool value) {
    return value ? "true" : "false";
}
std::string in_words(StopCriteria value) {
    switch (value) {
        case StopCriteria::EARLY:
            return "EARLY";
        case StopCriteria::HEURISTIC:
            return "HEURISTIC";
        case StopCriteria::NEVER:
            return "NEVER";
    }
    return "unknown";
}

std::string default_in_words(size_t value) {
    return value == GenerationConfig::unlimited ? "unlimited" : in_words(value);
}
template <class T>
std::string default_in_words(const T& value) {
    return in_words(value);
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* allowed) {
    refuse_argument(ParameterName(name), " is ", value, "; allowed: ", allowed);
}

// ---- What JSON has besides the parameters' own types.

/// transformers allows a list: the first is the main one, all of them stop.
void read_eos(const json& value, GenerationConfig& config) {
    const bool none = value.is_null() || value == -1 || (value.is_array() && value.empty());
    if (none) {
        config.eos_token_id = GenerationConfig().eos_token_id;
        return;
    }
    std::set<int64_t> all;
    if (value.is_array()) read_value(value, all);
    int64_t id = 0;
    read_value(value.is_array() ? value.front() : value, id);
    config.set_eos_token_id(id);
    config.stop_token_ids.merge(all);
}

/// transformers' name and values for stop_criteria.
void read_early_stopping(const json& value, GenerationConfig& config) {
    if (value.is_null()) {
        config.stop_criteria = GenerationConfig().stop_criteria;
        return;
    }
    check_argument(value.is_boolean() || value == "never", "true, false and \"never\"");
    config.stop_criteria = value.is_string()   ? StopCriteria::NEVER
                           : value.get<bool>() ? StopCriteria::EARLY
                                               : StopCriteria::HEURISTIC;
}

}  // namespace

const std::vector<GenerationParameter>& generation_parameters() {
    static const std::vector<GenerationParameter> table = [] {
        std::vector<GenerationParameter> all;
        const GenerationConfig defaults;
        const char* section = "";
        bool (*applies)(const GenerationConfig&) = nullptr;
#define PAGEWHEEL_SECTION(title) \
    section = title;             \
    applies = [](const GenerationConfig&) { return true; };
#define PAGEWHEEL_APPLIES(condition) \
    applies = [](const GenerationConfig& config) { return condition; };
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)                    \
    all.push_back({section, #name, type_name(defaults.name), default_in_words(defaults.name), \
                   allowed, help,                                                             \
                   [](const GenerationConfig& config) {                                       \
                       [[maybe_unused]] const type& value = config.name;                      \
                       if (!(condition)) refuse(#name, in_words(value), allowed);             \
                   },                                                                         \
                   applies});
#include "pagewheel/generation_parameters.def"
        return all;
    }();
    return table;
}

const std::map<std::string, ParameterReader>& parameter_readers() {
    static const std::map<std::string, ParameterReader> table = [] {
        std::map<std::string, ParameterReader> all;
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    all[#name] = [](const json& value, GenerationConfig& config) {         \
        if (value.is_null())                                               \
            config.name = GenerationConfig().name;                         \
        else                                                               \
            read_value(value, config.name);                                \
    };
#include "pagewheel/generation_parameters.def"
        all["eos_token_id"] = &read_eos;
        all["early_stopping"] = &read_early_stopping;
        return all;
    }();
    return table;
}

}  // namespace pagewheel
