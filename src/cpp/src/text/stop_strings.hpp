// Stop strings matched on a stream of text.
#pragma once

#include <cstddef>
#include <set>
#include <string>

namespace pagewheel {

/// Passes text through until the first stop string, whatever the pieces it arrives in.
class StopStrings {
public:
    StopStrings() = default;
    StopStrings(std::set<std::string> strings, bool include_in_output);

    bool empty() const { return m_strings.empty(); }
    /// A stop string was seen: nothing is passed any more.
    bool matched() const { return m_matched; }

    /// Text that may be handed out now: all that is neither behind the match nor possibly the
    /// beginning of one.
    std::string feed(const std::string& text);
    /// The text that was held back, when no more follows.
    std::string flush();

private:
    /// Bytes at the end of m_held that are the beginning of a stop string.
    size_t undecided_bytes() const;

    std::set<std::string> m_strings;
    bool m_include = false;
    bool m_matched = false;
    std::string m_held;
};

}  // namespace pagewheel
