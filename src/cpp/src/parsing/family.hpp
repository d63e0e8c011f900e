// How a family of models writes reasoning and tool calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parsing/call_notation.hpp"
#include "parsing/call_reader.hpp"

namespace pagewheel {

/// A text that begins a section of calls. No marker of a family is within another one.
struct SectionMarker {
    std::string text;
    CallReaderMaker make_reader;
    bool is_read = false;  ///< The reader gets the marker's bytes too.
};

struct ReasoningTags {
    std::vector<std::string> open;  ///< none: sections say where reasoning begins
    std::vector<std::string> close;
};

struct Family {
    std::string name;
    std::string models;  ///< whose, in words
    std::optional<ReasoningTags> reasoning;
    std::vector<SectionMarker> sections;
    CallNotations notations;  ///< none: the family has no tools
    /// Tokens around messages and calls, which are no content.
    std::vector<std::string> dropped;
    /// Some markers are special tokens: text that is decoded without them cannot be parsed.
    bool needs_special_tokens = false;
    /// A chat template belongs to the first family of which it has all texts of one of these lists.
    std::vector<std::vector<std::string>> template_signs;
};

/// In the order in which chat templates are looked at.
const std::vector<Family>& families();

/// Throws InvalidArgument that lists the names there are.
const Family& find_family(const std::string& name);

}  // namespace pagewheel
