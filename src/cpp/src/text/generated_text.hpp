// What a caller sees of the tokens that are generated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pagewheel/tokenizer.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

/// Turns a stream of tokens into a stream of text: the pieces joined equal the decoded whole, and
/// no piece ends within a character.
///
/// A token's text may depend on its neighbours (a leading space, bytes of one character spread over
/// tokens), so the last tokens are decoded again with each new one. What of their text a later
/// token may still change is held back: the end that may be half a character, or a space that the
/// decoder may take away ("do n" becomes "don't"). The window is kept short: a token costs O(1)
/// while a shorter window ends in the same text.
class IncrementalDetokenizer {
public:
    using Decode = std::function<std::string(const std::vector<int64_t>&)>;

    /// `decode` gives UTF-8, with U+FFFD for bytes that are none.
    explicit IncrementalDetokenizer(Decode decode) : m_decode(std::move(decode)) {}

    /// Text that became certain with `token`; often a token's worth, sometimes none.
    std::string append(int64_t token);
    /// The latest token changed the text, as nearly all do.
    bool latest_has_text() const { return m_latest_has_text; }
    /// Drops the latest token, which has no text in any place: many of them would fill the window.
    void forget_latest() { m_window.pop_back(); }
    /// What is held back, as the decoder shows it.
    std::string held() const { return m_text.substr(std::min(m_shown, m_text.size())); }
    /// Bytes of the held text before what may be half a character.
    size_t num_held_characters() const;
    /// Hands out what is held back; then all is as in the beginning.
    std::string flush();

private:
    std::string show(size_t end);
    void shorten_window();

    static constexpr size_t max_window = 16;

    Decode m_decode;
    std::vector<int64_t> m_window;     // the tokens decoded together
    std::string m_text;                // theirs
    size_t m_shown = 0;                // bytes of m_text that are handed out already
    size_t m_max_window = max_window;  // more where no shorter window will do
    bool m_latest_has_text = false;
};

/// A sequence's text, token by token, up to its first stop string.
///
/// The engine, streamers and the texts of results all have it from here, so that they end alike.
class GeneratedText {
public:
    struct Decoders {
        IncrementalDetokenizer::Decode shown;     ///< the text that the caller gets
        IncrementalDetokenizer::Decode verbatim;  ///< with the special tokens that `shown` hides
        std::function<std::string(int64_t)> bytes = {};  ///< of a token by itself, UTF-8 or not
    };

    explicit GeneratedText(Decoders decoders, StopStrings stop_strings = {});

    /// Text that may be handed out with `token`: no half character, no beginning of a stop string.
    std::string append(int64_t token);
    /// The rest, when no more follows; then all is as in the beginning, without stop strings.
    std::string flush();
    /// Bytes that are held back, but for what may be half a character: there the next token's text
    /// begins.
    size_t num_held() const {
        return m_stop_strings.num_held() + m_detokenizer.num_held_characters();
    }
    /// A stop string was seen.
    bool stopped() const { return m_stop_strings.matched(); }
    /// The stop string that was seen.
    const std::string& stop_string() const { return m_stop_strings.match(); }

private:
    /// Hidden text that came while the detokenizer held text back: it stands behind the first
    /// `begin` bytes of what is held.
    struct HiddenText {
        size_t begin;
        std::string text;
    };

    std::string feed(const std::string& text);
    std::string feed_hidden(const std::string& text);
    /// The text of a special token that the caller does not get; empty for all other tokens.
    std::string hidden_text(int64_t token) const;

    Decoders m_decoders;
    IncrementalDetokenizer m_detokenizer;
    StopStrings m_stop_strings;
    std::vector<HiddenText> m_waiting;  // is fed when the text before it is certain
    std::string m_expected;             // the held text, as it was when the last of them came
};

/// The tokenizer's decoders. The text has special tokens unless they are skipped.
GeneratedText::Decoders decoders_of(const Tokenizer& tokenizer, bool skip_special_tokens = true);

/// Follows a sequence's tokens and keeps their text, up to its first stop string. Each token is
/// decoded once, whether a stop string, a streamer or the reader of the end result wants it first.
class SequenceText {
public:
    SequenceText(GeneratedText::Decoders decoders, StopStrings stop_strings);

    /// A stop string was seen.
    bool stopped() const { return m_generated.stopped(); }
    /// The stop string that was seen; before end_with().
    const std::string& stop_string() const { return m_generated.stop_string(); }
    size_t num_decoded() const { return m_num_decoded; }
    /// The next tokens after those that were decoded.
    void append(const std::vector<int64_t>& tokens);
    /// Appends the last tokens: what was held back is text, too, and nothing comes after it. All
    /// are decoded at once if none was before.
    void end_with(const std::vector<int64_t>& tokens);

    /// What is certain.
    const std::string& text() const { return m_text; }
    /// How many tokens, from the first one on, have a part in the text. All have, until a stop
    /// string ends it or may.
    size_t num_tokens() const;
    /// The part of the text that was not taken before.
    std::string take();
    /// The text of the first tokens counts as taken, decoded or not.
    void skip(size_t num_tokens);

private:
    GeneratedText::Decoders m_decoders;
    GeneratedText m_generated;
    bool m_has_stop_strings;
    bool m_ended = false, m_is_cut = false;
    size_t m_num_decoded = 0, m_num_skipped = 0;  // tokens
    size_t m_num_taken = 0;                       // bytes
    std::string m_text;
    std::vector<size_t> m_begins;  // of the tokens, in all text; with stop strings
};

}  // namespace pagewheel
