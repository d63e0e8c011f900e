// Reads a section of tool calls byte by byte, as its formats describe it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parsing/argument_reader.hpp"
#include "parsing/events.hpp"
#include "parsing/message_format.hpp"

namespace pagewheel {

/// Reads one section, from behind the marker that opens it. It gives a call out as soon as its name
/// and the beginning of its arguments are known, and the arguments as they come.
class CallReader {
public:
    using Step = ReadStep;

    virtual ~CallReader() = default;
    /// Before it refuses within a call, it ends that.
    virtual Step take(char byte, Events& out) = 0;
    /// The text is over: ends the call that has begun, if there is one.
    virtual void cut(Events& out) { end_call(false, out); }
    /// A call has begun: what is read now is given out or part of its frame.
    virtual bool in_call() const { return m_in_call; }

protected:
    void begin_call(const std::string& name, const std::string& id, Events& out) {
        out.begin_call(name, id);
        m_in_call = true;
    }
    void end_call(bool complete, Events& out, const std::string& id = {}) {
        if (m_in_call) out.end_call(complete, id);
        m_in_call = false;
    }
    /// Gives m_arguments the byte. The call ends with them.
    Step take_argument(char byte, Events& out);
    /// Gives m_arguments, which are an object behind white space, the byte. The call begins with
    /// its bracket, if it has a name.
    Step take_object(char byte, const std::string& name, const std::string& id, Events& out);

    std::unique_ptr<ArgumentReader> m_arguments;

private:
    bool m_in_call = false;
};

/// What begins sections: a marker, with the formats that may follow it.
struct SectionMarker {
    std::string text;
    std::vector<const CallFormat*> formats;  ///< none: a message with a header
    bool is_read = false;                    ///< The reader gets the marker's bytes too.

    /// `types` must outlive the reader.
    std::unique_ptr<CallReader> make_reader(const ToolTypes& types) const;
};

/// The markers of a format, which must outlive them.
std::vector<SectionMarker> section_markers(const MessageFormat& format);

/// Reads one call that is an object with a name and arguments, from a text that nothing marks as a
/// call: no other keys before the name and the arguments, which must be there.
std::unique_ptr<CallReader> make_unmarked_object_reader();

}  // namespace pagewheel
