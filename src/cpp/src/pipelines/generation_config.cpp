#include "pagewheel/generation_config.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;
using Setter = std::function<void(GenerationConfig&, const json&)>;

size_t to_size(const json& value) {
    if (value.is_null()) return GenerationConfig::unlimited;
    if (!value.is_number_integer())
        throw json::type_error::create(302, "expected an integer", &value);
    check_argument(value >= 0, "it is ", value.dump(), ", less than 0");
    return value.get<size_t>();
}

float to_float(const json& value) {
    if (!value.is_number()) throw json::type_error::create(302, "expected a number", &value);
    return value.get<float>();
}

bool to_bool(const json& value) {
    return value.get<bool>();
}

void set_eos(GenerationConfig& config, const json& value) {
    // transformers allows a list: the first is the main one, all of them stop.
    if (value.is_null()) return;
    const json ids = value.is_array() ? value : json::array({value});
    for (const json& id : ids) config.stop_token_ids.insert(id.get<int64_t>());
    config.eos_token_id = ids.empty() ? -1 : ids.front().get<int64_t>();
}

StopCriteria to_stop_criteria(const json& value) {
    static const std::map<std::string, StopCriteria> names{{"EARLY", StopCriteria::EARLY},
                                                           {"HEURISTIC", StopCriteria::HEURISTIC},
                                                           {"NEVER", StopCriteria::NEVER}};
    const auto found = names.find(value.get<std::string>());
    check_argument(found != names.end(), "allowed are EARLY, HEURISTIC and NEVER");
    return found->second;
}

/// transformers' name and values for the same.
StopCriteria from_early_stopping(const json& value) {
    if (value.is_null()) return StopCriteria::HEURISTIC;
    if (value == "never") return StopCriteria::NEVER;
    return to_bool(value) ? StopCriteria::EARLY : StopCriteria::HEURISTIC;
}

/// A number that a file may leave to its default.
size_t to_count(const json& value) {
    return value.is_null() ? 1 : to_size(value);
}

template <class T>
std::set<T> to_set(const json& value) {
    return value.is_null() ? std::set<T>() : value.get<std::set<T>>();
}

const std::map<std::string, Setter>& setters() {
    using C = GenerationConfig;
    static const std::map<std::string, Setter> table{
        {"max_new_tokens", [](C& c, const json& v) { c.max_new_tokens = to_size(v); }},
        {"max_length", [](C& c, const json& v) { c.max_length = to_size(v); }},
        {"min_new_tokens",
         [](C& c, const json& v) { c.min_new_tokens = v.is_null() ? 0 : to_size(v); }},
        {"ignore_eos", [](C& c, const json& v) { c.ignore_eos = to_bool(v); }},
        {"eos_token_id", set_eos},
        {"stop_token_ids", [](C& c, const json& v) { c.stop_token_ids = to_set<int64_t>(v); }},
        {"stop_strings", [](C& c, const json& v) { c.stop_strings = to_set<std::string>(v); }},
        {"include_stop_str_in_output",
         [](C& c, const json& v) { c.include_stop_str_in_output = to_bool(v); }},
        {"priority", [](C& c, const json& v) { c.priority = v.get<int>(); }},
        {"timeout",
         [](C& c, const json& v) {
             c.timeout = v.is_null() ? std::optional<float>() : std::optional<float>(to_float(v));
         }},
        {"cache_salt", [](C& c, const json& v) { c.cache_salt = v.get<std::string>(); }},
        {"echo", [](C& c, const json& v) { c.echo = to_bool(v); }},
        {"logprobs", [](C& c, const json& v) { c.logprobs = to_size(v); }},
        {"num_return_sequences", [](C& c, const json& v) { c.num_return_sequences = to_count(v); }},
        {"num_beams", [](C& c, const json& v) { c.num_beams = to_count(v); }},
        {"num_beam_groups", [](C& c, const json& v) { c.num_beam_groups = to_count(v); }},
        {"diversity_penalty",
         [](C& c, const json& v) { c.diversity_penalty = v.is_null() ? 0.0f : to_float(v); }},
        {"length_penalty",
         [](C& c, const json& v) { c.length_penalty = v.is_null() ? 1.0f : to_float(v); }},
        {"stop_criteria", [](C& c, const json& v) { c.stop_criteria = to_stop_criteria(v); }},
        {"early_stopping", [](C& c, const json& v) { c.stop_criteria = from_early_stopping(v); }},
        {"no_repeat_ngram_size", [](C& c, const json& v) { c.no_repeat_ngram_size = to_size(v); }},
        {"apply_chat_template", [](C& c, const json& v) { c.apply_chat_template = to_bool(v); }},
        {"repetition_penalty", [](C& c, const json& v) { c.repetition_penalty = to_float(v); }},
        {"presence_penalty", [](C& c, const json& v) { c.presence_penalty = to_float(v); }},
        {"frequency_penalty", [](C& c, const json& v) { c.frequency_penalty = to_float(v); }},
        {"do_sample", [](C& c, const json& v) { c.do_sample = to_bool(v); }},
        {"temperature", [](C& c, const json& v) { c.temperature = to_float(v); }},
        {"top_p", [](C& c, const json& v) { c.top_p = to_float(v); }},
        {"top_k", [](C& c, const json& v) { c.top_k = to_size(v); }},
        {"min_p", [](C& c, const json& v) { c.min_p = to_float(v); }},
        {"rng_seed",
         [](C& c, const json& v) {
             c.rng_seed =
                 v.is_null() ? std::optional<uint64_t>() : std::optional<uint64_t>(to_size(v));
         }},
    };
    return table;
}

std::string known_keys() {
    std::string keys;
    for (const auto& [key, setter] : setters()) keys += (keys.empty() ? "" : ", ") + key;
    return keys;
}

void update(GenerationConfig& config, const json& object, bool strict) {
    check_argument(object.is_object(), "generation parameters must be a JSON object, got ",
                   object.dump());
    GenerationConfig updated = config;
    for (const auto& [key, value] : object.items()) {
        const auto setter = setters().find(key);
        if (setter == setters().end()) {
            check_argument(!strict, "unknown generation parameter '", key,
                           "'; known are: ", known_keys());
            continue;
        }
        try {
            setter->second(updated, value);
        } catch (const json::exception& error) {
            throw std::invalid_argument(concat("generation parameter '", key, "' cannot be ",
                                               value.dump(), ": ", error.what()));
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument(concat("generation parameter '", key, "': ", error.what()));
        }
    }
    config = std::move(updated);
}

}  // namespace

GenerationConfig::GenerationConfig(const std::filesystem::path& json_path) {
    update(*this, read_json_object(json_path), /*strict=*/false);
}

void GenerationConfig::update_from_json(const std::string& json_object) {
    const json object = parse_json(json_object, "the generation config");
    update(*this, object, /*strict=*/true);
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
    check_argument(num_return_sequences > 0, "num_return_sequences is 0; allowed: 1 or more");
    check_argument(num_beams > 0, "num_beams is 0; allowed: 1 or more");
    check_argument(num_beam_groups > 0 && num_beams % num_beam_groups == 0, "num_beam_groups is ",
                   num_beam_groups, "; allowed: divisors of num_beams, which is ", num_beams);
    if (is_beam_search())
        validate_beam_search();
    else
        check_argument(num_return_sequences == 1 || do_sample, "num_return_sequences is ",
                       num_return_sequences,
                       " but do_sample is false and num_beams is 1: all sequences would be the "
                       "same");
    check_argument(stop_strings.count("") == 0, "stop_strings holds an empty string");
    in_range("priority", priority, std::abs(priority) <= 1000, "-1000 to 1000");
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
