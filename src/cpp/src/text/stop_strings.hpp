// Stop strings matched on a stream of text.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace pagewheel {

struct GenerationConfig;

/// Passes text through until the first stop string, whatever the pieces it arrives in.
///
/// Besides it there may be hidden text, of special tokens, which is not passed. A stop string is
/// found in the text alone, and in the text with what is hidden in its place.
class StopStrings {
public:
    StopStrings() = default;
    StopStrings(std::set<std::string> strings, bool include_in_output, size_t min_tokens = 0);
    explicit StopStrings(const GenerationConfig& config);

    bool empty() const { return m_strings.empty(); }
    /// A stop string was seen: nothing is passed any more.
    bool matched() const { return m_matched; }

    /// What is fed next is of another token. No match ends in the text of the first min_tokens.
    void begin_token();
    /// Text that may be handed out now: all that is neither behind the match nor possibly the
    /// beginning of one. With include_in_output it ends with the stop string.
    std::string feed(const std::string& text);
    /// The same after `text` that is hidden; one call for each special token.
    std::string feed_hidden(const std::string& text);
    /// The text that was held back, when no more follows.
    std::string flush();

private:
    struct Match {
        size_t begin = std::string::npos;
        std::string string;
    };
    /// Text with what is hidden in it.
    struct Mixed {
        std::string text;
        std::vector<bool> hidden;  // by byte
        size_t num_early = 0;      // bytes at its begin in which no match ends

        void append(const std::string& more, bool is_hidden);
        void erase_before(size_t begin);
        /// Bytes from `begin` on that are not hidden.
        size_t count_shown(size_t begin) const;
    };

    std::string pass();
    /// The earliest in `text` that ends behind its early bytes, of those at one place the longest.
    Match find_first(const std::string& text, size_t num_early) const;
    /// Bytes at the end of `text` that are the beginning of a stop string.
    size_t undecided_bytes(const std::string& text) const;

    std::set<std::string> m_strings;
    bool m_include = false;
    bool m_matched = false;
    size_t m_early_tokens = 0;  // that are still to come
    bool m_is_early = false;    // the token is one of them
    std::string m_held;         // not handed out
    size_t m_num_early = 0;     // bytes at its begin in which no match ends
    size_t m_since_hidden = 0;  // bytes at its end after the latest hidden text, or all of it
    Mixed m_mixed;              // the beginning of a match that what is hidden has a part in
};

}  // namespace pagewheel
