// What reads a section of tool calls, byte by byte.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "parsing/bytes.hpp"
#include "parsing/events.hpp"
#include "parsing/literal_matcher.hpp"

namespace pagewheel {

/// Of one section, from the marker that opens it. It gives a call out as soon as its name is
/// known, and its arguments as they come.
class CallReader {
public:
    enum class Step {
        MORE,       ///< the byte was taken
        FRAME,      ///< the same: with what was read since the latest call it is of its frame
        DONE,       ///< it was the last of the section
        REASONING,  ///< the same, and reasoning follows
        REFUSED,    ///< it was not taken: the section ended before it, or is none
    };

    virtual ~CallReader() = default;
    /// Before it refuses within a call, it ends that.
    virtual Step take(char byte, Events& out) = 0;
    /// The text is over: ends the call that has begun, if there is one.
    virtual void cut(Events& out) = 0;
    /// A call has begun: what is read now is given out or part of its frame.
    virtual bool in_call() const = 0;
};

/// A byte of what may close a section.
inline CallReader::Step close_section(LiteralMatcher& closers, char byte) {
    switch (closers.take(byte)) {
        case LiteralMatcher::Step::MORE:
            return CallReader::Step::MORE;
        case LiteralMatcher::Step::MATCH:
            return CallReader::Step::DONE;
        case LiteralMatcher::Step::NONE:
            return CallReader::Step::REFUSED;
    }
    return CallReader::Step::REFUSED;
}

/// Of the functions that a model was told of: parameters that are texts, by function. Formats that
/// write values without quotes ask for it.
struct ToolTypes {
    struct Parameters {
        std::set<std::string> texts;
        std::set<std::string> others;  ///< of which the type is known, too
    };
    std::map<std::string, Parameters> by_function;
};

using CallReaderMaker = std::function<std::unique_ptr<CallReader>(const ToolTypes&)>;

}  // namespace pagewheel
