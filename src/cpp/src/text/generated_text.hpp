// What a caller sees of the tokens that are generated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pagewheel/tokenizer.hpp"
#include "text/incremental_detokenizer.hpp"
#include "text/stop_strings.hpp"

namespace pagewheel {

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
    bool stopped() const { return !m_ahead && m_stop_strings.matched(); }
    /// The stop string that was seen.
    const std::string& stop_string() const { return m_stop_strings.match(); }

private:
    /// Stop strings as they are if text that the detokenizer holds back stays as it is: then it
    /// comes before the hidden text that was met since. The next tokens say so, or show another.
    struct Ahead {
        StopStrings stop_strings;
        std::string passed;     ///< by them
        std::string held;       ///< of what they were fed, what the detokenizer did not hand out
        std::string otherwise;  ///< passed by those that were fed the hidden text alone
    };

    std::string feed(const std::string& text);
    std::string feed_hidden(const std::string& text);
    /// Goes on with the stop strings that are ahead.
    std::string confirm();
    /// Text of a special token that the caller does not get; empty for all others.
    std::string hidden_text(int64_t token) const;

    Decoders m_decoders;
    IncrementalDetokenizer m_detokenizer;
    StopStrings m_stop_strings;
    std::optional<Ahead> m_ahead;
};

/// Without special tokens in the text, or with them.
GeneratedText::Decoders decoders_of(const Tokenizer& tokenizer, bool skip_special_tokens = true);

}  // namespace pagewheel
