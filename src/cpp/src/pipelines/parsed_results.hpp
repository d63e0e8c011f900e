// What parsers make of the texts of a generate().
#pragma once

#include <string>
#include <vector>

#include "pagewheel/generation_config.hpp"
#include "pagewheel/generation_handle.hpp"
#include "pagewheel/streamer.hpp"
#include "pagewheel/tokenizer.hpp"

namespace pagewheel {

/// A message per output, as JSON: the config's parsers applied to its text, or what a
/// TextParserStreamer has parsed. Empty without either.
std::vector<std::string> parsed_outputs(const GenerationConfig& config,
                                        const StreamerVariant& streamer, const Tokenizer& tokenizer,
                                        const std::vector<GenerationOutput>& outputs);

}  // namespace pagewheel
