// Tokens to text, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pagewheel {

/// Turns a stream of tokens into a stream of text: the pieces joined equal the decoded whole, and
/// no piece ends within a character.
///
/// A token's text may depend on its neighbours (a leading space, bytes of one character spread over
/// tokens), so the last tokens are decoded again with each new one, from a point where text was
/// complete. The window is kept short: a token costs O(1), whatever came before.
class IncrementalDetokenizer {
public:
    using Decode = std::function<std::string(const std::vector<int64_t>&)>;

    explicit IncrementalDetokenizer(Decode decode) : m_decode(std::move(decode)) {}

    /// Text that became complete with `token`; often a token's worth, sometimes none.
    std::string append(int64_t token);
    /// What was held back: an unfinished character, shown as the decoder shows it.
    std::string flush();

private:
    void rebase();

    Decode m_decode;
    std::vector<int64_t> m_window;  // the tokens decoded together
    size_t m_shown_bytes = 0;       // of the window's text, handed out already
    size_t m_shown_tokens = 0;      // tokens of the window whose text is handed out completely
};

}  // namespace pagewheel
