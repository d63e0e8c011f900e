// How one request is to be generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pagewheel/logits_processor.hpp"
#include "pagewheel/structured_output.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

class Parser;

/// When beam search ends, besides its maximum length. Each group of beams, of which there are
/// num_beams / num_beam_groups, keeps as many complete sequences as it has beams.
enum class StopCriteria {
    EARLY,      ///< When every group has as many complete sequences.
    HEURISTIC,  ///< When besides no beam, complete at its present length, would be among them.
    NEVER,      ///< When no beam can be among them any more, at whatever length is best for it.
};

using TokenBiases = std::map<int64_t, float>;              ///< By token id.
using TokenSequences = std::vector<std::vector<int64_t>>;  ///< Each of at least one token.

/// DRY's breakers by default, which are llama.cpp's.
inline std::set<std::string> default_sequence_breakers() {
    return {"\n", ":", "\"", "*"};
}

/// Generation parameters of one request; the names are those of openvino_genai and transformers.
///
/// The members are the entries of generation_parameters.def, which says of each what it means, its
/// default and what is allowed: `size_t max_new_tokens = unlimited`, and so on.
/// generation_parameters() gives the same at run time.
struct PAGEWHEEL_API GenerationConfig {
    static constexpr size_t unlimited = std::numeric_limits<size_t>::max();

#define PAGEWHEEL_PARAMETER(type, name, initial, condition, allowed, help) type name = initial;
#include "pagewheel/generation_parameters.def"

    /// The shape that the text must have (docs/structured_output.md). Of the model's tokens those
    /// that it forbids are banned before all processors. Not in JSON.
    std::optional<StructuredOutputConfig> structured_output_config;
    /// The caller's own, applied in this order after those of the table. Each sequence of a request
    /// has forks of them; the objects themselves are never asked to process. Not in JSON.
    std::vector<std::shared_ptr<const LogitsProcessor>> logits_processors;
    /// What DecodedResults::parsed is made with: each is applied to every text, in this order
    /// (pagewheel/parsers.hpp). Of generate() alone; handles of add_request() give texts.
    std::vector<std::shared_ptr<Parser>> parsers;

    GenerationConfig() = default;
    /// Reads a model's generation_config.json. Keys that pagewheel does not know are left out; so
    /// are values that it refuses, with a warning (pagewheel/log.hpp). A temperature of 0 means
    /// greedy. Throws InvalidArgument if the file is not there or not JSON.
    explicit GenerationConfig(const std::filesystem::path& json_path);

    bool is_greedy_decoding() const { return !do_sample && !is_beam_search(); }
    bool is_beam_search() const { return num_beams > 1; }
    /// Drafts are asked for by number or by confidence.
    bool is_assisting_generation() const {
        return num_assistant_tokens > 0 || assistant_confidence_threshold > 0;
    }
    bool is_prompt_lookup() const { return max_ngram_size > 0 && num_assistant_tokens > 0; }
    bool is_multinomial() const { return do_sample; }

    bool is_stop_token(int64_t id) const {
        return id == eos_token_id || stop_token_ids.count(id) != 0;
    }
    /// The id becomes one of stop_token_ids, too. Those that are there stay.
    void set_eos_token_id(int64_t id);

    /// Sets what a JSON object names; null means the default, and for timeout "inf" is never. An
    /// unknown key, or a value that its member cannot hold exactly, is refused by name and leaves
    /// the object as it was.
    void update_from_json(const std::string& json_object);

    /// Throws InvalidArgument that names the parameter, its value and what is allowed.
    /// Nothing is asked of parameters that do not apply, such as temperature without do_sample.
    /// Something must end it: a stop token or string, or a limit; with ignore_eos a limit.
    void validate() const;
    /// validate(), but nothing need end it. For requests whose cache is evicted from, which may be
    /// endless.
    void validate_values() const;

private:
    void validate_stops() const;
    void validate_bans() const;
    void validate_beam_search() const;
    void validate_drafts() const;
};

/// A member of GenerationConfig in words, as generation_parameters.def has it.
struct GenerationParameter {
    std::string section;  ///< parameters that belong together share it
    std::string name;
    std::string type;     ///< as Python writes it: "int", "float | None", "set[str]"...
    std::string initial;  ///< the default: JSON, or "unlimited"
    std::string allowed;  ///< values that are allowed; empty: all of its type
    std::string help;
    /// Throws InvalidArgument if the value of this parameter alone is out of range.
    void (*check)(const GenerationConfig&);
    /// Whether the parameter matters for the config.
    bool (*applies)(const GenerationConfig&);
};

/// All of them, in the order of the table.
PAGEWHEEL_API const std::vector<GenerationParameter>& generation_parameters();

}  // namespace pagewheel
