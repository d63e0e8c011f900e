// Events as the JSON messages that parsers give.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parsing/events.hpp"

namespace pagewheel {

/// A message that a parser is given: an object. Throws InvalidArgument otherwise.
nlohmann::ordered_json parsed_message(const std::string& json);

/// Its text. Throws InvalidArgument where it has none.
std::string content_of(const nlohmann::ordered_json& message);

/// Puts reasoning and calls into a whole message, and the rest in the place of its content.
void put_events(const std::vector<ParseEvent>& events, nlohmann::ordered_json& message);

/// Puts pieces of reasoning and calls into deltas, one after the other.
class DeltaWriter {
public:
    /// Returns the content.
    std::string put(const std::vector<ParseEvent>& events, nlohmann::ordered_json& delta);
    /// Calls that ended and are complete.
    size_t num_whole_calls() const { return m_num_whole_calls; }

private:
    nlohmann::ordered_json& call(nlohmann::ordered_json& delta) const;

    size_t m_num_calls = 0, m_num_whole_calls = 0;
};

/// Adds a delta to the message of all before it.
void merge_delta(const nlohmann::ordered_json& delta, nlohmann::ordered_json& message);

}  // namespace pagewheel
