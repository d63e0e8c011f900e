#include "runtime/generation_parameters.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/properties.hpp"
#include "text/json_value.hpp"

namespace pagewheel {

using nlohmann::json;

std::string shown(const json& value) {
    if (value.is_structured() || value.is_discarded()) return value.type_name();
    const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);  // cut at any place
    return text.size() <= 100 ? text : text.substr(0, 100) + "...";
}

namespace {

// ---- Types and values in words.

template <class T>
constexpr const char* type_name() {
    if (std::is_same_v<T, bool>) return "bool";
    if (std::is_same_v<T, float>) return "float";
    if (std::is_same_v<T, std::optional<float>>) return "float | None";
    if (std::is_same_v<T, std::optional<uint64_t>>) return "int | None";
    if (std::is_same_v<T, std::string>) return "str";
    if (std::is_same_v<T, std::set<int64_t>>) return "set[int]";
    if (std::is_same_v<T, std::set<std::string>>) return "set[str]";
    if (std::is_same_v<T, TokenBiases>) return "dict[int, float]";
    if (std::is_same_v<T, TokenSequences>) return "list[list[int]]";
    return std::is_same_v<T, StopCriteria> ? "StopCriteria" : "int";
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
/// Called for the default alone, which is empty: validate() names single values that it refuses.
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
constexpr std::pair<const char*, StopCriteria> stop_criteria[] = {
    {"EARLY", StopCriteria::EARLY},
    {"HEURISTIC", StopCriteria::HEURISTIC},
    {"NEVER", StopCriteria::NEVER}};

std::string in_words(StopCriteria value) {
    for (const auto& [name, each] : stop_criteria)
        if (each == value) return name;
    return "unknown";
}

template <class T>
std::string as_default(const T& value) {
    if constexpr (std::is_same_v<T, size_t>)
        if (value == GenerationConfig::unlimited) return "unlimited";
    return in_words(value);
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* allowed) {
    refuse_argument(ParameterName(name), " is ", value, "; allowed: ", allowed);
}

// ---- From JSON. Each takes a value that its type holds, without rounding, and else throws
// InvalidArgument that says what is allowed.

/// Whether it is an integer, not one by rounding, in a range whose end is 2 ^ bits - 1.
bool is_integer(const json& value, int64_t least, uint64_t most, int bits) {
    if (value.is_number_float()) {
        const double number = value.get<double>();
        return number == std::trunc(number) && number >= double(least) &&
               number < std::ldexp(1.0, bits);
    }
    if (value.is_number_unsigned())
        return value.get<uint64_t>() <= most &&
               (least <= 0 || value.get<uint64_t>() >= uint64_t(least));
    return value.is_number_integer() && value.get<int64_t>() >= least;
}

template <class T>
T to_integer(const json& value, T least) {
    constexpr T most = std::numeric_limits<T>::max();
    check_argument(
        is_integer(value, int64_t(least), uint64_t(most), std::numeric_limits<T>::digits),
        "integers from ", least, " to ", most);
    return value.get<T>();
}

void read_value(const json& value, bool& out) {
    check_argument(value.is_boolean(), "true and false");
    out = value.get<bool>();
}

void read_value(const json& value, int& out) {
    out = to_integer(value, std::numeric_limits<int>::min());
}

void read_value(const json& value, size_t& out) {
    out = to_integer<size_t>(value, 0);
}

/// A token id.
void read_value(const json& value, int64_t& out) {
    out = to_integer<int64_t>(value, 0);
}

void read_value(const json& value, float& out) {
    constexpr float most = std::numeric_limits<float>::max();
    check_argument(value.is_number() && std::abs(value.get<double>()) <= double(most),
                   "numbers from ", -most, " to ", most);
    out = value.get<float>();
}

/// A time. JSON has no infinity: a timeout that never comes is written "inf".
void read_value(const json& value, std::optional<float>& out) {
    constexpr float most = std::numeric_limits<float>::max();
    if (value == "inf") {
        out = std::numeric_limits<float>::infinity();
        return;
    }
    const double seconds = value.is_number() ? value.get<double>() : 0;
    check_argument(seconds > 0 && seconds <= double(most), "numbers above 0, up to ", most,
                   ", or \"inf\"");
    out = float(seconds);
}

void read_value(const json& value, std::optional<uint64_t>& out) {
    out = to_integer<uint64_t>(value, 0);
}

void read_value(const json& value, std::string& out) {
    check_argument(value.is_string(), "strings");
    out = value.get<std::string>();
}

template <class T>
void read_list(const json& value, const char* of_what, std::set<T>& out) {
    check_argument(value.is_array(), "lists of ", of_what);
    std::set<T> values;
    for (const json& each : value) {
        T read;
        read_value(each, read);
        values.insert(std::move(read));
    }
    out = std::move(values);
}

void read_value(const json& value, std::set<int64_t>& out) {
    read_list(value, "token ids", out);
}

void read_value(const json& value, std::set<std::string>& out) {
    read_list(value, "strings", out);
}

/// What JSON has no number for is written "-inf", which is a ban, "inf" and "nan", which validate()
/// refuses by their token.
void read_value(const json& value, TokenBiases& out) {
    constexpr const char* allowed = "objects of numbers by token ids";
    check_argument(value.is_object(), allowed);
    TokenBiases biases;
    for (const auto& [key, bias] : value.items()) {
        int64_t id = 0;
        const char* const end = key.data() + key.size();
        const auto read = std::from_chars(key.data(), end, id);
        check_argument(read.ec == std::errc() && read.ptr == end && id >= 0, allowed);
        using Limits = std::numeric_limits<float>;
        if (bias == "-inf" || bias == "inf")
            biases[id] = bias == "inf" ? Limits::infinity() : -Limits::infinity();
        else if (bias == "nan")
            biases[id] = Limits::quiet_NaN();
        else
            read_value(bias, biases[id]);
    }
    out = std::move(biases);
}

void read_value(const json& value, TokenSequences& out) {
    check_argument(value.is_array(), "lists of lists of token ids");
    TokenSequences sequences;
    for (const json& each : value) {
        check_argument(each.is_array(), "lists of lists of token ids");
        std::vector<int64_t>& sequence = sequences.emplace_back();
        for (const json& id : each) read_value(id, sequence.emplace_back());
    }
    out = std::move(sequences);
}

void read_value(const json& value, StopCriteria& out) {
    for (const auto& [name, each] : stop_criteria)
        if (value == name) {
            out = each;
            return;
        }
    refuse_argument("EARLY, HEURISTIC and NEVER");
}

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

// ---- From OpenVINO's properties.

template <class T>
bool take(const ov::Any& value, T& out) {
    if (!value.is<T>()) return false;
    out = value.as<T>();
    return true;
}

template <class T>
bool take(const ov::Any& value, std::optional<T>& out) {
    T held;
    if (value.is<std::optional<T>>())
        out = value.as<std::optional<T>>();
    else if (take(value, held))
        out = held;
    else
        return false;
    return true;
}

/// Sets a parameter to a value of its own type, which JSON may not have. Returns whether it is.
using Taker = bool (*)(const ov::Any& value, GenerationConfig& config);

const std::map<std::string, Taker>& takers() {
    static const std::map<std::string, Taker> all{
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) \
    {#name,                                                                \
     [](const ov::Any& value, GenerationConfig& config) { return take(value, config.name); }},
#include "pagewheel/generation_parameters.def"
        {"structured_output_config",
         [](const ov::Any& value, GenerationConfig& config) {
             if (take(value, config.structured_output_config)) return true;
             refuse_argument(ParameterName("structured_output_config"), " has type ",
                             value.type_info().name(), "; allowed: StructuredOutputConfig");
         }},
    };
    return all;
}

nlohmann::ordered_json json_for(const std::string& name, const ov::Any& value) {
    try {
        return json_of_any(value);
    } catch (const InvalidArgument& error) {
        refuse_argument("generation parameter '", ParameterName(name), "': ", error.what());
    }
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
#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help)                      \
    all.push_back({section, #name, type_name<type>(), as_default(defaults.name), allowed, help, \
                   [](const GenerationConfig& config) {                                         \
                       [[maybe_unused]] const type& value = config.name;                        \
                       if (!(condition)) refuse(#name, in_words(value), allowed);               \
                   },                                                                           \
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

void set_properties(GenerationConfig& config, const ov::AnyMap& properties) {
    GenerationConfig updated = config;
    const auto base = properties.find("generation_config");
    if (base != properties.end())
        check_argument(take(base->second, updated), ParameterName("generation_config"),
                       " has type ", base->second.type_info().name(),
                       "; allowed: GenerationConfig");
    auto others = nlohmann::ordered_json::object();
    for (const auto& [name, value] : properties) {
        if (name == "generation_config") continue;
        const auto taker = takers().find(name);
        const bool is_eos = name == "eos_token_id";  // which is a stop token, too
        const bool is_taken = !is_eos && taker != takers().end() && taker->second(value, updated);
        if (!is_taken) others[name] = json_for(name, value);
    }
    updated.update_from_json(json_text(others));
    config = std::move(updated);
}

}  // namespace pagewheel
