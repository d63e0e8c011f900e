// What a generated text is made of: content, reasoning and tool calls, in the order of the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagewheel {

struct ParseEvent {
    enum class Kind {
        CONTENT,     ///< text: what the user is told
        REASONING,   ///< text: what the model thinks
        CALL_BEGIN,  ///< text: the function's name, never empty; id, if it is known by now
        ARGUMENTS,   ///< text: a piece of the arguments' JSON
        CALL_END,    ///< id, if it came since; complete
    };
    Kind kind;
    std::string text;
    std::string id = {};
    /// The pieces of the arguments are a JSON object. False where the text ended within them or
    /// they were no JSON.
    bool complete = true;
};

/// Events in the order they were added; pieces of text that follow each other are one event.
class Events {
public:
    void content(std::string_view text) { add(ParseEvent::Kind::CONTENT, text); }
    void reasoning(std::string_view text) { add(ParseEvent::Kind::REASONING, text); }
    void arguments(std::string_view json) { add(ParseEvent::Kind::ARGUMENTS, json); }
    void begin_call(std::string name, std::string id = {}) {
        ++m_num_call_events;
        m_all.push_back({ParseEvent::Kind::CALL_BEGIN, std::move(name), std::move(id)});
    }
    void end_call(bool complete, std::string id = {}) {
        ++m_num_call_events;
        m_all.push_back({ParseEvent::Kind::CALL_END, {}, std::move(id), complete});
    }

    /// Calls that have begun and ended, each counted.
    size_t num_call_events() const { return m_num_call_events; }
    const std::vector<ParseEvent>& all() const { return m_all; }
    std::vector<ParseEvent> take_all() { return std::exchange(m_all, {}); }

private:
    void add(ParseEvent::Kind kind, std::string_view text) {
        if (text.empty()) return;
        if (m_all.empty() || m_all.back().kind != kind) m_all.push_back({kind, {}});
        m_all.back().text += text;
    }

    std::vector<ParseEvent> m_all;
    size_t m_num_call_events = 0;
};

}  // namespace pagewheel
