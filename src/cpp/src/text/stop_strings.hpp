// Stop strings matched on a stream of text.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/text_automaton.hpp"

namespace pagewheel {

struct GenerationConfig;

/// Passes text through until the first stop string, whatever the pieces it arrives in. Of those
/// that are complete with one piece, the one that begins first is taken, and of several that begin
/// there the longest. Copies share the strings.
///
/// Besides the text there may be hidden text, of special tokens, which is not passed. A stop string
/// is found in the text alone, and in the text with what is hidden in its place.
class StopStrings {
public:
    StopStrings() = default;
    StopStrings(const std::set<std::string>& strings, bool include_in_output,
                size_t min_tokens = 0);
    /// `like` has the same strings: their automaton is shared. Null: it is made.
    explicit StopStrings(const GenerationConfig& config, const StopStrings* like = nullptr);

    bool empty() const { return !m_automaton; }
    /// A stop string was seen: nothing is passed any more.
    bool matched() const { return m_matched; }
    /// The one that was seen.
    const std::string& match() const { return m_match; }

    /// What is fed next is of another token. No match ends in the text of the first min_tokens.
    void begin_token();
    /// Text that may be handed out now: all that is neither behind the match nor possibly the
    /// beginning of one. With include_in_output it ends with the stop string.
    std::string feed(const std::string& text);
    /// Text that may be handed out after `text` that is hidden; one call for each special token.
    std::string feed_hidden(const std::string& text);
    size_t num_held() const { return m_held.size(); }
    /// The text that was held back, when no more follows.
    std::string flush();

private:
    struct Hidden {
        size_t begin, size;  // in the mixed text
    };
    struct Match {
        size_t begin = std::string::npos;
        size_t size = 0;
    };

    std::string pass(const std::string& text, bool is_hidden);
    /// What ends with the byte that led to the state, if it begins first, or there and is longer.
    void keep_first(Match& first, TextAutomaton::State state, size_t end) const;
    /// Bytes of the mixed text from there on that are not hidden.
    size_t count_shown(size_t begin) const;
    /// Forgets the mixed text before its last bytes.
    void forget_mixed(size_t num_kept);

    std::shared_ptr<const TextAutomaton> m_automaton;  // null: there are no strings
    bool m_include = false;
    bool m_matched = false;
    std::string m_match;
    size_t m_early_tokens = 0;  // that are still to come
    bool m_is_early = false;    // the token is one of them
    std::string m_held;         // not handed out
    TextAutomaton::State m_shown = TextAutomaton::start;
    // The mixed text is the text with what is hidden in its place. Kept of it is what may be the
    // beginning of a match; offsets count from there.
    std::string m_mixed;
    TextAutomaton::State m_after_mixed = TextAutomaton::start;
    std::vector<Hidden> m_hidden;  // those that end in what is kept
};

}  // namespace pagewheel
