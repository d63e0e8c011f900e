// Tool calls that are JSON objects with a name and arguments.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parsing/call_notation.hpp"
#include "parsing/call_reader.hpp"
#include "parsing/json_scanner.hpp"
#include "parsing/literal_matcher.hpp"

namespace pagewheel {

/// One object: {"name": ..., "arguments": {...}}, or its parts in an object "function". Also known
/// are "parameters" for the arguments and a text "function" for the name. "id" may be there, and
/// other keys.
class JsonCallReader final : public CallReader {
public:
    /// Strict, of a text that nothing marks as a call: no other keys before the name and the
    /// arguments, which must be there.
    explicit JsonCallReader(bool is_strict) : m_is_strict(is_strict) {}

    Step take(char byte, Events& out) override;
    void cut(Events& out) override;
    bool in_call() const override { return m_has_begun; }

private:
    enum class Part { NONE, KEY, NAME, ID, ARGUMENTS, OTHER };

    bool begin_part(char byte, Events& out);
    bool end_key();
    void end_part();
    bool end_object(Events& out);
    void append(char byte, bool in_string, Events& out);
    void begin_call(Events& out);

    const bool m_is_strict;
    JsonScanner m_scanner;
    size_t m_base = 1;          // depth of the object with the name
    Part m_part = Part::NONE;   // that is read
    Part m_next = Part::OTHER;  // what the latest key is of
    bool m_next_may_be_object = false;
    std::string m_text;   // of a key, name or id, with its quotes
    std::string m_early;  // arguments that came before the name
    std::string m_name, m_id;
    bool m_has_arguments = false, m_arguments_are_whole = false;
    bool m_has_begun = false, m_has_told_id = false;
};

struct JsonCallsFormat {
    bool is_strict = false;                 ///< as JsonCallReader has it
    bool may_repeat = false;                ///< Objects or lists may follow each other.
    std::string separators = {};            ///< One of these may be between them then.
    std::vector<std::string> closers = {};  ///< One of them may end the section.
};

/// A section of objects, or of a list of them.
class JsonCallsReader final : public CallReader {
public:
    explicit JsonCallsReader(JsonCallsFormat format)
        : m_format(std::move(format)), m_closer(m_format.closers) {}

    Step take(char byte, Events& out) override;
    void cut(Events& out) override;
    bool in_call() const override { return m_call && m_call->in_call(); }

private:
    enum class Place { BEFORE, CALL, AFTER_IN_LIST, AFTER };

    Step take_before(char byte, Events& out);
    Step take_after(char byte, Events& out);
    Step after_call();

    const JsonCallsFormat m_format;
    LiteralMatcher m_closer;
    Place m_place = Place::BEFORE;
    bool m_in_list = false;
    std::unique_ptr<JsonCallReader> m_call;
};

inline CallReaderMaker json_calls(JsonCallsFormat format = {}) {
    return [format](const ToolTypes&) { return std::make_unique<JsonCallsReader>(format); };
}

/// How one object is written.
inline CallNotation json_notation(std::string trigger, const std::string& key = "arguments") {
    CallNotation calls;
    calls.trigger = std::move(trigger);
    calls.before_name = "{\"name\": \"";
    calls.after_name = "\", \"" + key + "\": ";
    calls.after_arguments = "}";
    return calls;
}

inline CallNotation json_list_notation(std::string trigger, const std::string& closer = {}) {
    CallNotation calls = json_notation(std::move(trigger));
    calls.open = "[";
    calls.separator = ", ";
    calls.close = "]" + closer;
    return calls;
}

}  // namespace pagewheel
