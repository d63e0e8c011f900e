// The text of one sequence, decoded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "text/generated_text.hpp"

namespace pagewheel {

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
    /// The same where no more follow: what was held back is text, too. Nothing comes after it.
    /// All are decoded at once if none was before.
    void end_with(const std::vector<int64_t>& tokens);

    /// What is certain.
    const std::string& text() const { return m_text; }
    /// Tokens, from the first one on, of which a part is in it. All are, until a stop string ends
    /// it or may.
    size_t num_tokens() const;
    /// Of it what was not taken before.
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
