#include "pagewheel/generation_config.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "check.hpp"
#include "log.hpp"
#include "model/json_file.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;
using Setter = std::function<void(GenerationConfig&, const json&)>;

// Far more than anyone wants, and few enough to be served.
constexpr size_t most_of_a_kind = 1000;
constexpr size_t longest_stop_string = 10000;

/// `value` for a message: whole if it is short, for it may be of any size and depth.
std::string shown(const json& value) {
    if (value.is_structured() || value.is_discarded()) return value.type_name();
    const std::string text = value.dump();
    return text.size() <= 100 ? text : text.substr(0, 100) + "...";
}

// Converters throw std::invalid_argument that says what is allowed.

/// Whether it is an integer, not one by rounding, in a range.
bool is_integer(const json& value, int64_t least, uint64_t most) {
    if (value.is_number_unsigned())
        return value.get<uint64_t>() <= most &&
               (least <= 0 || value.get<uint64_t>() >= uint64_t(least));
    return value.is_number_integer() && value.get<int64_t>() >= least;
}

template <class T>
T to_integer(const json& value, T least, T most) {
    check_argument(is_integer(value, int64_t(least), uint64_t(most)), "integers from ", least,
                   " to ", most);
    return value.get<T>();
}

size_t to_size(const json& value) {
    return to_integer<size_t>(value, 0, GenerationConfig::unlimited);
}

int to_int(const json& value) {
    return to_integer(value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
}

int64_t to_token_id(const json& value) {
    return to_integer<int64_t>(value, 0, std::numeric_limits<int64_t>::max());
}

float to_float(const json& value) {
    constexpr float most = std::numeric_limits<float>::max();
    check_argument(value.is_number() && std::abs(value.get<double>()) <= double(most),
                   "numbers from ", -most, " to ", most);
    return value.get<float>();
}

/// JSON has no infinity: a timeout that never comes is written "inf".
float to_timeout(const json& value) {
    constexpr float most = std::numeric_limits<float>::max();
    if (value == "inf") return std::numeric_limits<float>::infinity();
    const double seconds = value.is_number() ? value.get<double>() : 0;
    check_argument(seconds > 0 && seconds <= double(most), "numbers above 0, up to ", most,
                   ", or \"inf\"");
    return float(seconds);
}

bool to_bool(const json& value) {
    check_argument(value.is_boolean(), "true and false");
    return value.get<bool>();
}

std::string to_text(const json& value) {
    check_argument(value.is_string(), "strings");
    return value.get<std::string>();
}

std::set<int64_t> to_token_ids(const json& value) {
    check_argument(value.is_array(), "lists of token ids");
    std::set<int64_t> ids;
    for (const json& id : value) ids.insert(to_token_id(id));
    return ids;
}

std::set<std::string> to_texts(const json& value) {
    check_argument(value.is_array(), "lists of strings");
    std::set<std::string> texts;
    for (const json& text : value) texts.insert(to_text(text));
    return texts;
}

/// transformers allows a list: the first is the main one, all of them stop.
void set_eos(GenerationConfig& config, const json& value) {
    const bool none = value.is_null() || value == -1 || (value.is_array() && value.empty());
    config.eos_token_id = none               ? GenerationConfig().eos_token_id
                          : value.is_array() ? to_token_id(value.front())
                                             : to_token_id(value);
    if (none) return;
    config.stop_token_ids.insert(config.eos_token_id);
    if (value.is_array()) config.stop_token_ids.merge(to_token_ids(value));
}

StopCriteria to_stop_criteria(const json& value) {
    static const std::map<std::string, StopCriteria> names{{"EARLY", StopCriteria::EARLY},
                                                           {"HEURISTIC", StopCriteria::HEURISTIC},
                                                           {"NEVER", StopCriteria::NEVER}};
    const auto found = value.is_string() ? names.find(value.get<std::string>()) : names.end();
    check_argument(found != names.end(), "EARLY, HEURISTIC and NEVER");
    return found->second;
}

/// transformers' name and values for the same.
StopCriteria from_early_stopping(const json& value) {
    check_argument(value.is_boolean() || value == "never", "true, false and \"never\"");
    if (value.is_string()) return StopCriteria::NEVER;
    return value.get<bool>() ? StopCriteria::EARLY : StopCriteria::HEURISTIC;
}

/// Sets a member; null is its default.
template <class T, class Convert>
Setter member(T GenerationConfig::* where, Convert convert) {
    return [=](GenerationConfig& config, const json& value) {
        config.*where = value.is_null() ? GenerationConfig().*where : T(convert(value));
    };
}

const std::map<std::string, Setter>& setters() {
    using C = GenerationConfig;
    static const std::map<std::string, Setter> table{
        {"max_new_tokens", member(&C::max_new_tokens, to_size)},
        {"max_length", member(&C::max_length, to_size)},
        {"min_new_tokens", member(&C::min_new_tokens, to_size)},
        {"ignore_eos", member(&C::ignore_eos, to_bool)},
        {"eos_token_id", set_eos},
        {"stop_token_ids", member(&C::stop_token_ids, to_token_ids)},
        {"stop_strings", member(&C::stop_strings, to_texts)},
        {"include_stop_str_in_output", member(&C::include_stop_str_in_output, to_bool)},
        {"priority", member(&C::priority, to_int)},
        {"timeout", member(&C::timeout, to_timeout)},
        {"cache_salt", member(&C::cache_salt, to_text)},
        {"echo", member(&C::echo, to_bool)},
        {"logprobs", member(&C::logprobs, to_size)},
        {"num_return_sequences", member(&C::num_return_sequences, to_size)},
        {"num_beams", member(&C::num_beams, to_size)},
        {"num_beam_groups", member(&C::num_beam_groups, to_size)},
        {"diversity_penalty", member(&C::diversity_penalty, to_float)},
        {"length_penalty", member(&C::length_penalty, to_float)},
        {"stop_criteria", member(&C::stop_criteria, to_stop_criteria)},
        {"early_stopping", member(&C::stop_criteria, from_early_stopping)},
        {"no_repeat_ngram_size", member(&C::no_repeat_ngram_size, to_size)},
        {"apply_chat_template", member(&C::apply_chat_template, to_bool)},
        {"repetition_penalty", member(&C::repetition_penalty, to_float)},
        {"presence_penalty", member(&C::presence_penalty, to_float)},
        {"frequency_penalty", member(&C::frequency_penalty, to_float)},
        {"do_sample", member(&C::do_sample, to_bool)},
        {"temperature", member(&C::temperature, to_float)},
        {"top_p", member(&C::top_p, to_float)},
        {"top_k", member(&C::top_k, to_size)},
        {"min_p", member(&C::min_p, to_float)},
        {"rng_seed", member(&C::rng_seed, to_size)},
    };
    return table;
}

std::string known_keys() {
    std::string keys;
    for (const auto& [key, setter] : setters()) keys += (keys.empty() ? "" : ", ") + key;
    return keys;
}

void set(GenerationConfig& config, const std::string& key, const json& value) {
    try {
        setters().at(key)(config, value);
    } catch (const std::invalid_argument& allowed) {
        throw std::invalid_argument(concat("generation parameter '", key, "' is ", shown(value),
                                           "; allowed: ", allowed.what()));
    }
}

/// Sets of `object` what makes a valid config; the reasons by the names of what does not.
std::map<std::string, std::string> set_what_is_valid(GenerationConfig& config, const json& object) {
    std::map<std::string, std::string> left;
    for (const auto& [key, value] : object.items())
        if (setters().count(key) != 0) left[key];
    const auto temperature = object.find("temperature");
    if (temperature != object.end() && *temperature == 0) {  // what others take for greedy
        left.erase("temperature");
        left.erase("do_sample");
    }
    // Some are valid beside others only: again, as long as one more is.
    for (bool again = true; std::exchange(again, false);)
        for (auto it = left.begin(); it != left.end();) {
            GenerationConfig next = config;
            try {
                set(next, it->first, object.at(it->first));
                next.validate();
            } catch (const std::invalid_argument& error) {
                (it++)->second = error.what();
                continue;
            }
            config = std::move(next);
            it = left.erase(it);
            again = true;
        }
    return left;
}

}  // namespace

GenerationConfig::GenerationConfig(const std::filesystem::path& json_path) {
    for (const auto& [key, reason] : set_what_is_valid(*this, read_json_object(json_path)))
        log(LogLevel::WARNING, concat(json_path, ": ", key, " is left at its default: ", reason));
}

void GenerationConfig::update_from_json(const std::string& json_object) {
    const json object = parse_json(json_object, "the generation config");
    if (!object.is_object())
        throw std::invalid_argument(concat("generation parameters must be a JSON object, got ",
                                           object.is_discarded() ? "no JSON" : shown(object)));
    GenerationConfig updated = *this;
    for (const auto& [key, value] : object.items()) {
        check_argument(setters().count(key) != 0, "unknown generation parameter '", key,
                       "'; known are: ", known_keys());
        set(updated, key, value);
    }
    *this = std::move(updated);
}

void GenerationConfig::set_eos_token_id(int64_t id) {
    check_argument(eos_token_id == -1 || eos_token_id == id, "eos_token_id is ", eos_token_id,
                   " already, and was to become ", id);
    eos_token_id = id;
}

void GenerationConfig::validate() const {
    const auto in_range = [](const char* name, double value, bool ok, const char* allowed) {
        check_argument(ok && !std::isnan(value), name, " is ", value, "; allowed: ", allowed);
    };
    check_argument(max_new_tokens > 0, "max_new_tokens is 0; allowed: 1 or more");
    check_argument(max_length > 0, "max_length is 0; allowed: 1 or more");
    check_argument(min_new_tokens <= max_new_tokens, "min_new_tokens is ", min_new_tokens,
                   ", more than max_new_tokens, ", max_new_tokens);
    const auto count = [](const char* name, size_t value, size_t least) {
        check_argument(value >= least && value <= most_of_a_kind, name, " is ", value,
                       "; allowed: ", least, " to ", most_of_a_kind);
    };
    count("num_return_sequences", num_return_sequences, 1);
    count("num_beams", num_beams, 1);
    count("logprobs", logprobs, 0);
    count("the number of stop_strings", stop_strings.size(), 0);
    count("the number of stop_token_ids", stop_token_ids.size(), 0);
    check_argument(num_beam_groups > 0 && num_beams % num_beam_groups == 0, "num_beam_groups is ",
                   num_beam_groups, "; allowed: divisors of num_beams, which is ", num_beams);
    if (is_beam_search())
        validate_beam_search();
    else
        check_argument(num_return_sequences == 1 || do_sample, "num_return_sequences is ",
                       num_return_sequences,
                       " but do_sample is false and num_beams is 1: all sequences would be the "
                       "same");
    for (const std::string& stop : stop_strings) {
        check_argument(!stop.empty(), "stop_strings holds an empty string");
        check_argument(stop.size() <= longest_stop_string, "stop_strings holds one of ",
                       stop.size(), " bytes; allowed: up to ", longest_stop_string);
        check_utf8(stop, "one of stop_strings");
    }
    in_range("priority", priority, priority >= -1000 && priority <= 1000, "-1000 to 1000");
    if (timeout) in_range("timeout", *timeout, *timeout > 0, "greater than 0 seconds, or unset");
    in_range("temperature", temperature, temperature > 0 && std::isfinite(temperature),
             "greater than 0 (do_sample=False is greedy)");
    in_range("top_p", top_p, top_p > 0 && top_p <= 1, "greater than 0, at most 1");
    in_range("min_p", min_p, min_p >= 0 && min_p < 1, "from 0 to less than 1");
    in_range("repetition_penalty", repetition_penalty,
             repetition_penalty > 0 && std::isfinite(repetition_penalty), "greater than 0");
    in_range("presence_penalty", presence_penalty, std::abs(presence_penalty) <= 2, "-2 to 2");
    in_range("frequency_penalty", frequency_penalty, std::abs(frequency_penalty) <= 2, "-2 to 2");
}

void GenerationConfig::validate_beam_search() const {
    check_argument(!do_sample, "num_beams is ", num_beams,
                   " and do_sample is true; allowed: one of beam search and sampling");
    check_argument(num_return_sequences <= num_beams, "num_return_sequences is ",
                   num_return_sequences, "; allowed: up to num_beams, which is ", num_beams);
    check_argument(std::isfinite(length_penalty), "length_penalty is ", length_penalty,
                   "; allowed: a finite number");
    if (num_beam_groups == 1)
        check_argument(diversity_penalty == 0.0f, "diversity_penalty is ", diversity_penalty,
                       " but num_beam_groups is 1; allowed: 0, or more groups");
    else
        check_argument(diversity_penalty > 0 && std::isfinite(diversity_penalty),
                       "diversity_penalty is ", diversity_penalty, " and num_beam_groups is ",
                       num_beam_groups, "; allowed: greater than 0, else all groups find the same");
}

}  // namespace pagewheel
