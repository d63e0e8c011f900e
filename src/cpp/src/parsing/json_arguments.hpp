// Arguments that a model writes as a JSON object.
#pragma once

#include "parsing/events.hpp"
#include "parsing/json_scanner.hpp"

namespace pagewheel {

/// Gives them out as they come, of `{` on.
class JsonArguments {
public:
    /// BAD: the byte was not taken.
    JsonScanner::Step take(char byte, Events& out) {
        if (m_scanner.depth() == 0 && byte != '{') return JsonScanner::Step::BAD;
        const bool in_string = m_scanner.in_string();
        const JsonScanner::Step step = m_scanner.take(byte);
        if (step == JsonScanner::Step::BAD) return step;
        std::string piece;
        if (in_string)
            append_string_byte(piece, byte);
        else
            piece = byte;
        out.arguments(piece);
        return step;
    }

private:
    JsonScanner m_scanner;
};

}  // namespace pagewheel
