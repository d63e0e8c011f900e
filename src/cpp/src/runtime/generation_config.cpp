#include "pagewheel/generation_config.hpp"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "runtime/generation_parameters.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

using nlohmann::json;

// Far more than anyone wants, and few enough to be served.
constexpr size_t most_stops = 1000;
constexpr size_t longest_stop_string = 10000, most_stop_bytes = 65536;
constexpr size_t most_bad_words = 10000, longest_bad_word = 1000, most_bad_bytes = 65536;
constexpr size_t most_breakers = 100, longest_breaker = 40;
constexpr size_t most_processors = 100;
constexpr float most_bias = 100;  // OpenAI's

void check_count(const char* name, size_t size, size_t most) {
    check_argument(size <= most, "the number of ", ParameterName(name), " is ", size,
                   "; allowed: 0 to ", most);
}

/// Checks the whole of texts or lists; `unit` is what their lengths count.
void check_whole(const char* name, size_t whole, size_t most, const char* unit) {
    check_argument(whole <= most, ParameterName(name), " has ", whole, " ", unit,
                   " in all; allowed: up to ", most);
}

void check_texts(const char* name, const std::set<std::string>& texts, size_t most, size_t longest,
                 size_t most_bytes) {
    check_count(name, texts.size(), most);
    size_t whole = 0;
    for (const std::string& text : texts) {
        check_argument(!text.empty(), ParameterName(name), " holds an empty string");
        check_argument(text.size() <= longest, ParameterName(name), " holds one of ", text.size(),
                       " bytes; allowed: up to ", longest);
        check_utf8(text, {name, "one of " + std::string(name)});
        whole += text.size();
    }
    check_whole(name, whole, most_bytes, "bytes");
}

std::string known_keys() {
    std::string keys;
    for (const auto& [key, reader] : parameter_readers()) keys += (keys.empty() ? "" : ", ") + key;
    return keys;
}

void set(GenerationConfig& config, const std::string& key, const json& value) {
    try {
        // In a config an empty set is the default; whoever gives one would mean the opposite.
        check_argument(key != "allowed_token_ids" || !value.is_array() || !value.empty(),
                       "lists of at least one token id, and null, with which all may be");
        parameter_readers().at(key)(value, config);
    } catch (const InvalidArgument& allowed) {
        refuse_argument("generation parameter '", ParameterName(key), "' is ", shown(value),
                        "; allowed: ", allowed.what());
    }
}

/// The parameter of that name, in a model's file, also where it does not apply: callers who ask
/// for sampling have it then.
void check_value(const GenerationConfig& config, const std::string& name) {
    for (const GenerationParameter& parameter : generation_parameters())
        if (parameter.name == name) parameter.check(config);
}

/// Sets of `object` what makes a valid config; the reasons by the names of what does not.
std::map<std::string, std::string> set_what_is_valid(GenerationConfig& config, const json& object) {
    std::map<std::string, std::string> left;
    for (const auto& [key, value] : object.items())
        if (parameter_readers().count(key) != 0) left[key];
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
                check_value(next, it->first);
                next.validate_values();
            } catch (const InvalidArgument& error) {
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
        refuse_argument("generation parameters must be a JSON object, got ",
                        object.is_discarded() ? "no JSON" : shown(object));
    GenerationConfig updated = *this;
    for (const auto& [key, value] : object.items()) {
        check_argument(parameter_readers().count(key) != 0, "unknown generation parameter '",
                       ParameterName(key), "'; known are: ", known_keys());
        set(updated, key, value);
    }
    // The order of the keys does not matter for this.
    if (object.contains("eos_token_id") && updated.eos_token_id != -1)
        updated.stop_token_ids.insert(updated.eos_token_id);
    *this = std::move(updated);
}

void GenerationConfig::set_eos_token_id(int64_t id) {
    eos_token_id = id;
    stop_token_ids.insert(id);
}

void GenerationConfig::validate() const {
    validate_values();
    if (max_new_tokens != unlimited || max_length != unlimited) return;
    check_argument(!ignore_eos, ParameterName("ignore_eos"),
                   " is true, and max_new_tokens and max_length are not set: one of them "
                   "must be");
    check_argument(
        eos_token_id != -1 || !stop_token_ids.empty() || !stop_strings.empty(),
        "nothing ends the generation: one of eos_token_id, stop_token_ids, stop_strings, "
        "max_new_tokens and max_length must be set");
}

void GenerationConfig::validate_values() const {
    for (const GenerationParameter& parameter : generation_parameters())
        if (parameter.applies(*this)) parameter.check(*this);
    check_argument(min_new_tokens <= max_new_tokens, ParameterName("min_new_tokens"), " is ",
                   min_new_tokens, ", more than max_new_tokens, ", max_new_tokens);
    check_argument(min_tokens <= max_new_tokens, ParameterName("min_tokens"), " is ", min_tokens,
                   ", more than max_new_tokens, ", max_new_tokens);
    if (is_beam_search())
        validate_beam_search();
    else
        check_argument(num_return_sequences == 1 || do_sample,
                       ParameterName("num_return_sequences"), " is ", num_return_sequences,
                       " but do_sample is false and num_beams is 1: all sequences would be the "
                       "same");
    validate_stops();
    validate_bans();
    validate_drafts();
    if (structured_output_config) structured_output_config->validate();
}

void GenerationConfig::validate_stops() const {
    check_count("stop_token_ids", stop_token_ids.size(), most_stops);
    for (const int64_t id : stop_token_ids)
        check_argument(id >= 0, ParameterName("stop_token_ids"), " holds ", id,
                       "; allowed: 0 or more");
    check_texts("stop_strings", stop_strings, most_stops, longest_stop_string, most_stop_bytes);
}

void GenerationConfig::validate_drafts() const {
    check_argument(num_assistant_tokens == 0 || assistant_confidence_threshold == 0,
                   ParameterName("num_assistant_tokens"),
                   " and assistant_confidence_threshold are both set; allowed: one of them");
    check_argument(max_ngram_size == 0 || num_assistant_tokens > 0, ParameterName("max_ngram_size"),
                   " is ", max_ngram_size, " without num_assistant_tokens; allowed: 0");
    check_argument(!is_assisting_generation() || !is_beam_search(), ParameterName("num_beams"),
                   " is ", num_beams, " with speculative decoding; allowed: 1");
}

void GenerationConfig::validate_bans() const {
    for (const auto& [id, bias] : logit_bias)
        check_argument(std::abs(bias) <= most_bias || (std::isinf(bias) && bias < 0),
                       ParameterName("logit_bias"), " of token ", id, " is ", bias,
                       "; allowed: ", -most_bias, " to ", most_bias,
                       ", and -inf, which bans the token");
    check_texts("bad_words", bad_words, most_bad_words, longest_bad_word, most_bad_bytes);
    check_count("bad_words_ids", bad_words_ids.size(), most_bad_words);
    size_t whole = 0;
    for (const std::vector<int64_t>& sequence : bad_words_ids) {
        check_argument(!sequence.empty() && sequence.size() <= longest_bad_word,
                       ParameterName("bad_words_ids"), " holds a list of ", sequence.size(),
                       " token ids; allowed: 1 to ", longest_bad_word);
        whole += sequence.size();
    }
    check_whole("bad_words_ids", whole, most_bad_bytes, "token ids");
    check_texts("dry_sequence_breakers", dry_sequence_breakers, most_breakers, longest_breaker,
                most_breakers * longest_breaker);
    check_count("logits_processors", logits_processors.size(), most_processors);
    for (const auto& processor : logits_processors)
        check_argument(processor != nullptr, ParameterName("logits_processors"),
                       " holds a null pointer");
}

void GenerationConfig::validate_beam_search() const {
    check_argument(!do_sample, ParameterName("num_beams"), " is ", num_beams,
                   " and do_sample is true; allowed: one of beam search and sampling");
    check_argument(num_beams % num_beam_groups == 0, ParameterName("num_beam_groups"), " is ",
                   num_beam_groups, "; allowed: divisors of num_beams, which is ", num_beams);
    check_argument(no_repeat_ngram_size > 0, ParameterName("no_repeat_ngram_size"),
                   " is 0 and num_beams is ", num_beams, "; allowed: 1 or more");
    check_argument(num_return_sequences <= num_beams, ParameterName("num_return_sequences"), " is ",
                   num_return_sequences, "; allowed: up to num_beams, which is ", num_beams);
    if (num_beam_groups == 1)
        check_argument(diversity_penalty == 0.0f, ParameterName("diversity_penalty"), " is ",
                       diversity_penalty, " but num_beam_groups is 1; allowed: 0, or more groups");
    else
        check_argument(diversity_penalty != 0 && std::isfinite(diversity_penalty),
                       ParameterName("diversity_penalty"), " is ", diversity_penalty,
                       " and num_beam_groups is ", num_beam_groups,
                       "; allowed: another number than 0, else all groups find the same");
}

}  // namespace pagewheel
