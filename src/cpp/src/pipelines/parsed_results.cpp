#include "pipelines/parsed_results.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "text/generated_text.hpp"

namespace pagewheel {
namespace {

/// The output's text with its special tokens, but for the one that ended it.
std::string text_with_special_tokens(const GenerationConfig& config, const Tokenizer& tokenizer,
                                     const StopStrings& stop_strings, std::vector<int64_t> tokens) {
    const bool is_stopped = !tokens.empty() && (config.is_stop_token(tokens.back()) ||
                                                tokens.back() == tokenizer.get_eos_token_id());
    if (is_stopped) tokens.pop_back();
    GeneratedText text(decoders_of(tokenizer, /*skip_special_tokens=*/false), stop_strings);
    std::string result;
    for (const int64_t token : tokens) result += text.append(token);
    return result + text.flush();
}

std::string parsed_output(const GenerationConfig& config, const Tokenizer& tokenizer,
                          const StopStrings& stop_strings, const GenerationOutput& output) {
    const auto needs = [](const auto& parser) { return parser->needs_special_tokens(); };
    const bool with_special_tokens =
        std::any_of(config.parsers.begin(), config.parsers.end(), needs);
    nlohmann::ordered_json message;
    message["content"] =
        with_special_tokens
            ? text_with_special_tokens(config, tokenizer, stop_strings, output.generated_ids)
            : output.text;
    std::string json = json_text(message);
    for (const auto& parser : config.parsers) parser->parse(json);
    return json;
}

}  // namespace

std::vector<std::string> parsed_outputs(const GenerationConfig& config,
                                        const StreamerVariant& streamer, const Tokenizer& tokenizer,
                                        const std::vector<GenerationOutput>& outputs) {
    std::vector<std::string> parsed;
    if (config.parsers.empty()) {
        const auto* given = std::get_if<std::shared_ptr<StreamerBase>>(&streamer);
        const auto* parses =
            given ? dynamic_cast<const TextParserStreamer*>(given->get()) : nullptr;
        if (parses) parsed.push_back(parses->get_parsed_message());
        return parsed;
    }
    const StopStrings stop_strings(config);
    for (const GenerationOutput& output : outputs)
        parsed.push_back(parsed_output(config, tokenizer, stop_strings, output));
    return parsed;
}

}  // namespace pagewheel
