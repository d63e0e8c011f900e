// How one request is to be generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// When beam search ends, besides its maximum length. Each group of beams, of which there are
/// num_beams / num_beam_groups, keeps as many complete sequences as it has beams.
enum class StopCriteria {
    EARLY,      ///< When every group has as many complete sequences.
    HEURISTIC,  ///< When besides no beam, complete at its present length, would be among them.
    NEVER,      ///< When no beam can be among them any more, at whatever length is best for it.
};

/// Generation parameters of one request; the names are those of openvino_genai and transformers.
///
/// Multinomial sampling filters in transformers' order: penalties, temperature, top_k, top_p,
/// min_p.
struct PAGEWHEEL_API GenerationConfig {
    static constexpr size_t unlimited = std::numeric_limits<size_t>::max();

    GenerationConfig() = default;
    /// Reads a model's generation_config.json. Keys that pagewheel does not know are left out; so
    /// are values that it refuses, with a warning (pagewheel/log.hpp). A temperature of 0 means
    /// greedy. Throws std::invalid_argument if the file is not there or not JSON.
    explicit GenerationConfig(const std::filesystem::path& json_path);

    // ---- When it ends. All of them end at the model's context length at the latest.
    size_t max_new_tokens = unlimited;  ///< Tokens to generate; 0 generates none.
    size_t max_length = unlimited;  ///< Prompt and generated tokens; only without max_new_tokens.
    size_t min_new_tokens = 0;      ///< No end-of-sequence token before that many.
    bool ignore_eos = false;        ///< Generate past eos_token_id and stop_token_ids.
    int64_t eos_token_id = -1;      ///< -1: the model's own, and its other stop tokens.
    std::set<int64_t> stop_token_ids;  ///< Stop as eos_token_id does.
    /// Matched on text, whatever the token boundaries, and with the text of special tokens in it.
    /// At most 1000 of at most 10,000 bytes.
    std::set<std::string> stop_strings;
    bool include_stop_str_in_output = false;  ///< The text ends with the stop string, not before.

    // ---- What comes back.
    bool echo = false;    ///< Put the prompt before the result.
    size_t logprobs = 0;  ///< Not 0, up to 1000: log-probability of each generated token.
    /// Independent samples of one prompt, with do_sample, at most 1000; of beam search the best
    /// sequences, at most num_beams.
    size_t num_return_sequences = 1;
    bool apply_chat_template = true;  ///< Of a plain string given to generate().

    // ---- How it is served.
    int priority = 0;  ///< Higher is served first, -1000 to 1000; see SchedulerConfig::aging_steps.
    /// Seconds from its submission after which the request ends with what there is
    /// (GenerationStatus::TIMEOUT). Unset: never.
    std::optional<float> timeout;
    /// Only requests with the same salt share cached prefixes: one per tenant keeps them apart.
    std::string cache_salt;

    // ---- Beam search, with num_beams above 1: it looks for the sequences of the highest score,
    // the sum of log-probabilities / length ^ length_penalty. What it finds comes when it is over.
    size_t num_beams = 1;        ///< Sequences that are continued at a time.
    size_t num_beam_groups = 1;  ///< Of equal size, each searching for itself.
    /// Subtracted from a token's log-probability for each beam of the groups before that chose it
    /// in the same step (Vijayakumar et al. 2016); greater than 0 where there are groups.
    float diversity_penalty = 0.0f;
    float length_penalty = 1.0f;  ///< Above 0 longer sequences gain, below 0 shorter ones.
    StopCriteria stop_criteria = StopCriteria::HEURISTIC;

    // ---- Penalties, on logits, before anything else; of beam search on log-probabilities.
    float repetition_penalty = 1.0f;  ///< CTRL's: positive logits divided, negative multiplied.
    float presence_penalty = 0.0f;    ///< OpenAI's: subtracted once from generated tokens.
    float frequency_penalty =
        0.0f;  ///< OpenAI's: subtracted per occurrence among generated tokens.
    /// No so many tokens in a row occur twice, prompt included; 0 and `unlimited`: no such rule.
    size_t no_repeat_ngram_size = unlimited;

    // ---- Sampling.
    bool do_sample = false;  ///< Multinomial instead of greedy.
    float temperature = 1.0f;
    float top_p = 1.0f;                ///< Smallest set of tokens whose probabilities reach top_p.
    size_t top_k = unlimited;          ///< The k most probable tokens; 0 and `unlimited` mean all.
    float min_p = 0.0f;                ///< Tokens at least min_p times as probable as the best.
    std::optional<uint64_t> rng_seed;  ///< Unset: another text every time.

    bool is_greedy_decoding() const { return !do_sample && !is_beam_search(); }
    bool is_beam_search() const { return num_beams > 1; }
    bool is_multinomial() const { return do_sample; }

    bool is_stop_token(int64_t id) const {
        return id == eos_token_id || stop_token_ids.count(id) != 0;
    }
    /// Throws std::invalid_argument if another id was set before.
    void set_eos_token_id(int64_t id);

    /// Sets what a JSON object names; null means the default, and for timeout "inf" is never. An
    /// unknown key, or a value that its member cannot hold exactly, is refused by name and leaves
    /// the object as it was.
    void update_from_json(const std::string& json_object);

    /// Throws std::invalid_argument that names the parameter, its value and what is allowed.
    void validate() const;

private:
    void validate_beam_search() const;
};

}  // namespace pagewheel
