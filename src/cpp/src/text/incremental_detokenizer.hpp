// Tokens to text, piece by piece.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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
    /// Bytes of it before what may be half a character.
    size_t num_held_characters() const;
    /// The same, handed out; then all is as in the beginning.
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

}  // namespace pagewheel
