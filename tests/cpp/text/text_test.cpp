#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "pagewheel/chat_history.hpp"
#include "pagewheel/errors.hpp"
#include "text/chat_template.hpp"
#include "text/generated_text.hpp"
#include "text/stop_strings.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

TEST(Utf8, AcceptsEveryWellFormedLength) {
    EXPECT_FALSE(find_invalid_utf8("plain"));
    EXPECT_FALSE(find_invalid_utf8("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x99\x82\xF4\x8F\xBF\xBF"));
    EXPECT_FALSE(find_invalid_utf8(std::string("a\0b", 3)));
}

TEST(Utf8, FindsTheFirstBadByte) {
    EXPECT_EQ(find_invalid_utf8("ab\xFFz"), 2u);
    EXPECT_EQ(find_invalid_utf8("a\xE2\x82"), 1u);         // cut off
    EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u);          // overlong
    EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);      // overlong
    EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
    EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
    EXPECT_EQ(find_invalid_utf8("\x80"), 0u);              // continuation
    EXPECT_THROW(check_utf8("a\xFF", ParameterName("prompt", "the prompt")), InvalidArgument);
}

TEST(Utf8, ReplacesMaximalPartsAsPythonDoes) {
    const std::string mark = "\xEF\xBF\xBD";
    EXPECT_EQ(replace_invalid_utf8("plain \xE2\x82\xAC"), "plain \xE2\x82\xAC");
    EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), mark);
    EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x41"), mark + "A");
    EXPECT_EQ(replace_invalid_utf8("\x80\x80"), mark + mark);
    EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), mark + mark + mark);
    EXPECT_EQ(replace_invalid_utf8("\xE2\x82\xE2\x82\xAC"), mark + "\xE2\x82\xAC");
    EXPECT_EQ(replace_invalid_utf8("\xF4\x90z"), mark + mark + "z");
}

/// Bytes as tokens.
std::string decode_bytes(const std::vector<int64_t>& tokens) {
    return replace_invalid_utf8(std::string(tokens.begin(), tokens.end()));
}

TEST(IncrementalDetokenizer, NeverShowsHalfACharacter) {
    IncrementalDetokenizer detokenizer(decode_bytes);
    std::vector<std::string> pieces;
    for (const char byte : std::string("a\xF0\x9F\x99\x82z"))
        pieces.push_back(detokenizer.append(static_cast<unsigned char>(byte)));
    EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "", "", "\xF0\x9F\x99\x82", "z"}));
    EXPECT_EQ(detokenizer.flush(), "");
}

TEST(IncrementalDetokenizer, PiecesJoinToTheWhole) {
    const std::string alphabet[] = {"a", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82", "\n"};
    for (unsigned seed = 0; seed < 50; ++seed) {
        std::mt19937 random(seed);
        std::string text;
        for (int i = 0; i < 100; ++i) text += alphabet[random() % 6];
        IncrementalDetokenizer detokenizer(decode_bytes);
        std::string joined;
        for (const char byte : text) {
            const std::string piece = detokenizer.append(static_cast<unsigned char>(byte));
            EXPECT_FALSE(find_invalid_utf8(piece));
            joined += piece;
        }
        EXPECT_EQ(joined + detokenizer.flush(), text);
    }
}

/// Streams the tokens; checks that no piece cuts a character.
std::string stream(const IncrementalDetokenizer::Decode& decode,
                   const std::vector<int64_t>& tokens) {
    IncrementalDetokenizer detokenizer(decode);
    std::string joined;
    for (int64_t token : tokens) {
        const std::string piece = detokenizer.append(token);
        EXPECT_FALSE(find_invalid_utf8(piece));
        joined += piece;
    }
    return joined + detokenizer.flush();
}

/// `length` tokens out of those given; runs of one are frequent.
std::vector<int64_t> random_tokens(const std::vector<int64_t>& among, size_t length,
                                   unsigned seed) {
    std::mt19937 random(seed);
    std::vector<int64_t> tokens;
    while (tokens.size() < length)
        tokens.insert(tokens.end(), random() % 4 == 0 ? random() % 40 : 1,
                      among[random() % among.size()]);
    return tokens;
}

TEST(IncrementalDetokenizer, CharactersBehindBytesThatAreNoneArriveWhole) {
    EXPECT_EQ(stream(decode_bytes, {0x80, 0x80, 0x80, 0xF0, 0x9F, 0x98, 0x80}),
              decode_bytes({0x80, 0x80, 0x80, 0xF0, 0x9F, 0x98, 0x80}));
    EXPECT_EQ(stream(decode_bytes, {0x80, 0x80, 0x80, 0xC3, 0xA9}),
              decode_bytes({0x80, 0x80, 0x80, 0xC3, 0xA9}));
}

TEST(IncrementalDetokenizer, RandomBytesStreamAsTheyDecode) {
    // Bytes of each kind: ASCII, continuations, beginnings of characters, what is never one.
    const std::vector<int64_t> bytes{'a',  ' ',  '.',  0x80, 0x9F, 0xA9, 0xBF, 0xC3,
                                     0xE2, 0x82, 0xED, 0xA0, 0xF0, 0x98, 0xF4, 0xFF};
    for (unsigned seed = 0; seed < 300; ++seed) {
        const auto tokens = random_tokens(bytes, 150, seed);
        EXPECT_EQ(stream(decode_bytes, tokens), decode_bytes(tokens)) << "seed " << seed;
    }
}

/// As SentencePiece decodes byte fallback: each byte that is no character's is shown by itself, and
/// a space at the beginning is dropped.
std::string decode_pieces(const std::vector<int64_t>& tokens) {
    std::string text;
    const std::string bytes(tokens.begin(), tokens.end());
    for (size_t i = 0; i < bytes.size();) {
        size_t length = 1;
        while (length < 4 && find_invalid_utf8(bytes.substr(i, length))) ++length;
        const bool is_character = !find_invalid_utf8(bytes.substr(i, length));
        text += is_character ? bytes.substr(i, length) : "\xEF\xBF\xBD";
        i += is_character ? length : 1;
    }
    return text.rfind(' ', 0) == 0 ? text.substr(1) : text;
}

TEST(IncrementalDetokenizer, ByteFallbackStreamsAsItDecodes) {
    const std::vector<int64_t> bytes{'a',  ' ',  0x80, 0x9F, 0xA9, 0xC3,
                                     0xE2, 0x82, 0xAC, 0xF0, 0x98, 0xFF};
    for (unsigned seed = 0; seed < 300; ++seed) {
        const auto tokens = random_tokens(bytes, 150, seed);
        EXPECT_EQ(stream(decode_pieces, tokens), decode_pieces(tokens)) << "seed " << seed;
    }
}

/// With transformers' clean_up_tokenization_spaces, and no space at the end.
std::string decode_cleaned(const std::vector<int64_t>& tokens) {
    static const std::regex spaces(" ([.?!,]|'[ms]|'[rv]e|n't)| (') | $");
    return std::regex_replace(decode_pieces(tokens), spaces, "$1$2");
}

TEST(IncrementalDetokenizer, SpacesThatTheDecoderTakesAwayAreNotShownBefore) {
    const std::vector<int64_t> bytes{' ', '\'', 'n', 't', 'm', 's', 'r', 'e', '.', 'x', 0xC3, 0xA9};
    for (unsigned seed = 0; seed < 300; ++seed) {
        const auto tokens = random_tokens(bytes, 100, seed);
        EXPECT_EQ(stream(decode_cleaned, tokens), decode_cleaned(tokens)) << "seed " << seed;
    }
}

TEST(IncrementalDetokenizer, ATokenIsDecodedWithFewOthersHoweverLongTheText) {
    for (const int64_t byte : {int64_t('a'), int64_t(0x80), int64_t(0xF0), int64_t(' ')}) {
        size_t decoded = 0;
        IncrementalDetokenizer detokenizer([&](const std::vector<int64_t>& tokens) {
            decoded += tokens.size();
            return decode_pieces(tokens);
        });
        constexpr size_t length = 3000;
        for (size_t i = 0; i < length; ++i) detokenizer.append(byte);
        EXPECT_LT(decoded, 24 * length) << "byte " << byte;
    }
}

TEST(IncrementalDetokenizer, ShowsWhatStaysBrokenInsteadOfHoldingItForEver) {
    IncrementalDetokenizer detokenizer(decode_bytes);
    std::string joined;
    for (int i = 0; i < 8; ++i) joined += detokenizer.append(0xF0);
    EXPECT_FALSE(joined.empty());
    IncrementalDetokenizer unfinished(decode_bytes);
    EXPECT_EQ(unfinished.append(0xE2), "");
    EXPECT_EQ(unfinished.flush(), "\xEF\xBF\xBD");
}

std::string feed_by(size_t width, const std::string& text, StopStrings stop_strings) {
    std::string passed;
    for (size_t i = 0; i < text.size(); i += width)
        passed += stop_strings.feed(text.substr(i, width));
    return passed + stop_strings.flush();
}

TEST(StopStrings, CutWhateverThePieces) {
    for (size_t width = 1; width < 12; ++width) {
        EXPECT_EQ(feed_by(width, "one STOP two", {{"STOP"}, false}), "one ");
        EXPECT_EQ(feed_by(width, "one STOP two", {{"STOP"}, true}), "one STOP");
        EXPECT_EQ(feed_by(width, "one STO", {{"STOP"}, false}), "one STO");
        EXPECT_EQ(feed_by(width, "ababac", {{"abac"}, false}), "ab");
    }
    // Of two that begin at one place the longer is cut, if it arrives together with the shorter.
    EXPECT_EQ(feed_by(100, "x##y", {{"#", "##"}, true}), "x##");
    EXPECT_EQ(feed_by(100, "b then a", {{"a", "b"}, false}), "");
}

TEST(StopStrings, HoldBackOnlyWhatMayBecomeAMatch) {
    StopStrings stop_strings({"\n\n"}, false);
    EXPECT_EQ(stop_strings.feed("line\n"), "line");
    EXPECT_EQ(stop_strings.feed("next"), "\nnext");
    EXPECT_FALSE(stop_strings.matched());
    EXPECT_EQ(stop_strings.feed("\n\nlost"), "");
    EXPECT_TRUE(stop_strings.matched());
    EXPECT_EQ(stop_strings.feed("also lost"), "");
}

TEST(StopStrings, AreFoundInWhatIsHiddenAndInWhatIsNot) {
    // Text, hidden text, text; what the text is up to the stop string.
    const auto cut = [](const char* stop, bool include, const char* before, const char* hidden,
                        const char* after) {
        StopStrings stop_strings({stop}, include);
        std::string passed;
        for (const char* c = before; *c; ++c) passed += stop_strings.feed(std::string(1, *c));
        passed += stop_strings.feed_hidden(hidden);
        for (const char* c = after; *c; ++c) passed += stop_strings.feed(std::string(1, *c));
        EXPECT_TRUE(stop_strings.matched()) << stop;
        return passed + stop_strings.flush();
    };
    for (const bool include : {false, true}) {
        const auto with = [&](std::string text, const char* stop) {
            return include ? text + stop : text;
        };
        EXPECT_EQ(cut("<end>", include, "hello", "<end>", "lost"), with("hello", "<end>"));
        EXPECT_EQ(cut("<end>\nQ", include, "hello", "<end>", "\nQ lost"),
                  with("hello", "<end>\nQ"));
        EXPECT_EQ(cut("o<end>", include, "hello", "<end>", "lost"), with("hell", "o<end>"));
        EXPECT_EQ(cut("low", include, "hello", "<x>", "world"), with("hel", "low"));
        EXPECT_EQ(cut("w", include, "hello", "<x>", "world"), with("hello", "w"));
    }
}

TEST(StopStrings, AreNotFoundAcrossHiddenTextThatIsNoPartOfThem) {
    StopStrings stop_strings({"a<y>"}, false);
    std::string passed = stop_strings.feed("a");
    passed += stop_strings.feed_hidden("<x>");
    passed += stop_strings.feed_hidden("<y>");
    passed += stop_strings.feed("b");
    EXPECT_EQ(passed + stop_strings.flush(), "ab");
    EXPECT_FALSE(stop_strings.matched());
}

/// Stop strings by their definition, from the whole text after each piece.
class DefinedStopStrings {
public:
    DefinedStopStrings(std::set<std::string> stops, bool include, size_t min_tokens)
        : m_stops(std::move(stops)), m_include(include), m_early(min_tokens) {}

    void begin_token() {
        m_is_early = m_early > 0;
        if (m_is_early) --m_early;
    }
    /// All that was passed so far.
    const std::string& feed(const std::string& text, bool is_hidden) {
        if (m_matched) return m_passed;
        const size_t old_shown = m_shown.size(), old_mixed = m_mixed.size();
        for (const char byte : text) {
            m_mixed += byte;
            if (!is_hidden) m_shown += byte;
            m_places.push_back(is_hidden ? m_shown.size() : m_shown.size() - 1);
        }
        if (!m_is_early) {
            find(m_shown, old_shown, [](size_t at) { return at; });
            find(m_mixed, old_mixed, [&](size_t at) { return m_places[at]; });
        }
        if (m_matched) {
            m_passed = m_shown.substr(0, m_place) + (m_include ? m_stop : "");
        } else {
            size_t end = m_shown.size() - begun(m_shown);
            const size_t mixed = m_mixed.size() - begun(m_mixed);
            if (mixed < m_mixed.size()) end = std::min(end, m_places[mixed]);
            m_passed = m_shown.substr(0, end);
        }
        return m_passed;
    }
    bool matched() const { return m_matched; }
    const std::string& shown() const { return m_shown; }

private:
    template <class PlaceOf>
    void find(const std::string& text, size_t old, const PlaceOf& place_of) {
        size_t best = text.size();
        std::string longest;
        for (const std::string& stop : m_stops)
            for (size_t end = old + 1; end <= text.size(); ++end) {
                if (end < stop.size()) continue;
                const size_t begin = end - stop.size();
                if (text.compare(begin, stop.size(), stop) != 0 || begin > best) continue;
                if (begin < best || stop.size() > longest.size()) longest = stop;
                best = begin;
            }
        if (longest.empty() || (m_matched && place_of(best) >= m_place)) return;
        m_matched = true;
        m_place = place_of(best);
        m_stop = longest;
    }
    size_t begun(const std::string& text) const {
        size_t most = 0;
        for (const std::string& stop : m_stops)
            for (size_t size = 1; size < stop.size() && size <= text.size(); ++size)
                if (text.compare(text.size() - size, size, stop, 0, size) == 0)
                    most = std::max(most, size);
        return most;
    }

    std::set<std::string> m_stops;
    bool m_include, m_is_early = false, m_matched = false;
    size_t m_early, m_place = 0;
    std::string m_shown, m_mixed, m_passed, m_stop;
    std::vector<size_t> m_places;  // in m_shown, of m_mixed's bytes
};

TEST(StopStrings, AreTheirDefinitionInRandomTexts) {
    std::mt19937 random(7);
    const auto text_of = [&](size_t most) {
        std::string text;
        for (size_t size = random() % (most + 1); text.size() < size;)
            text += "ab\xC3"[random() % 3];
        return text;
    };
    size_t num_matched = 0;
    for (int round = 0; round < 20000; ++round) {
        std::set<std::string> stops;
        for (size_t i = 1 + random() % 6; i > 0; --i) stops.insert('a' + text_of(6));
        if (random() % 2) stops.insert('b' + text_of(12));
        const bool include = random() % 2;
        const size_t min_tokens = random() % 3;
        DefinedStopStrings defined(stops, include, min_tokens);
        StopStrings found(stops, include, min_tokens);
        std::string passed;
        for (size_t token = 0; token < 8; ++token) {
            defined.begin_token();
            found.begin_token();
            for (size_t piece = random() % 3; piece > 0; --piece) {
                const bool is_hidden = random() % 4 == 0;
                const std::string text = text_of(random() % 4 ? 3 : 20);
                passed += is_hidden ? found.feed_hidden(text) : found.feed(text);
                ASSERT_EQ(passed, defined.feed(text, is_hidden)) << "round " << round;
                ASSERT_EQ(found.matched(), defined.matched()) << "round " << round;
            }
        }
        num_matched += found.matched();
        if (found.matched()) continue;
        ASSERT_EQ(passed + found.flush(), defined.shown());
    }
    EXPECT_GT(num_matched, 5000u);
    EXPECT_LT(num_matched, 19000u);
}

/// Bytes as tokens, and two special tokens from 256 on.
GeneratedText::Decoders decoders_of_bytes() {
    const auto decode = [](bool skip) {
        return [skip](const std::vector<int64_t>& tokens) {
            std::string bytes;
            for (int64_t token : tokens)
                if (token < 256)
                    bytes += char(token);
                else if (!skip)
                    bytes += token == 256 ? "<x>" : "<end>";
            return replace_invalid_utf8(bytes);
        };
    };
    return {decode(true), decode(false)};
}

TEST(GeneratedText, StreamsAsItDecodesWithSpecialTokensAmongTheBytesOfCharacters) {
    const std::vector<int64_t> tokens{'a', 0xC3, 256, 256, 0xA9, 0x80, 256, 0xE2, 0x82, 257, 0xAC};
    for (unsigned seed = 0; seed < 200; ++seed) {
        const auto sequence = random_tokens(tokens, 100, seed);
        GeneratedText text(decoders_of_bytes());
        std::string joined;
        for (int64_t token : sequence) joined += text.append(token);
        EXPECT_EQ(joined + text.flush(), decoders_of_bytes().shown(sequence)) << "seed " << seed;
    }
}

TEST(GeneratedText, EndsExactlyAtAStopStringWhateverTheBytesAndSpecialTokens) {
    const std::vector<int64_t> tokens{'a', 'b', 0xC3, 0xA9, 0x80, 256, 0xF0, 0x9F, 0x98, 0x80};
    size_t num_stopped = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        const auto sequence = random_tokens(tokens, 60, seed);
        const std::string whole = decoders_of_bytes().shown(sequence);
        const std::string stop = "\xC3\xA9";
        for (const bool include : {false, true}) {
            GeneratedText text(decoders_of_bytes(), StopStrings({stop}, include));
            std::string joined;
            for (int64_t token : sequence) joined += text.append(token);
            joined += text.flush();
            const size_t found = whole.find(stop);
            num_stopped += found != std::string::npos;
            EXPECT_EQ(joined, found == std::string::npos
                                  ? whole
                                  : whole.substr(0, found + (include ? stop.size() : 0)))
                << "seed " << seed;
        }
    }
    EXPECT_GT(num_stopped, 50u);
}

TEST(GeneratedText, NoStopStringEndsInTheTextOfTheFirstTokens) {
    const std::string tokens = "a#b##c#d";
    const auto cut = [&](const std::string& stop, size_t min_tokens) {
        GeneratedText text(decoders_of_bytes(), StopStrings({stop}, false, min_tokens));
        std::string joined;
        for (const char token : tokens) joined += text.append(int64_t(token));
        return joined + text.flush();
    };
    EXPECT_EQ(cut("#", 0), "a");
    EXPECT_EQ(cut("#", 1), "a");
    EXPECT_EQ(cut("#", 2), "a#b");
    EXPECT_EQ(cut("#", 5), "a#b##c");
    EXPECT_EQ(cut("#", 7), tokens);
    // It may begin there.
    EXPECT_EQ(cut("##", 4), "a#b");
    EXPECT_EQ(cut("##", 5), tokens);
    EXPECT_EQ(cut("b##c", 5), "a#");
    EXPECT_EQ(cut("#", 100), tokens);
}

TEST(GeneratedText, NoHiddenStopStringEndsInTheTextOfTheFirstTokens) {
    for (size_t min_tokens = 0; min_tokens < 6; ++min_tokens) {
        GeneratedText text(decoders_of_bytes(), StopStrings({"a<x>", "<end>"}, false, min_tokens));
        std::string joined;
        for (const int64_t token :
             {int64_t('a'), int64_t(256), int64_t('b'), int64_t('a'), int64_t(256), int64_t('c')})
            joined += text.append(token);
        EXPECT_EQ(joined + text.flush(), min_tokens < 2 ? "" : min_tokens < 5 ? "ab" : "abac");
    }
}

TEST(GeneratedText, ASpecialTokenWhoseTextIsAStopStringEndsTheText) {
    for (const bool include : {false, true}) {
        GeneratedText text(decoders_of_bytes(), StopStrings({"<end>"}, include));
        std::string joined;
        for (int64_t token : {int64_t('a'), int64_t(256), int64_t('b'), int64_t(257), int64_t('c')})
            joined += text.append(token);
        EXPECT_TRUE(text.stopped());
        EXPECT_EQ(joined + text.flush(), include ? "ab<end>" : "ab");
    }
}

TEST(GeneratedText, HiddenTextComesAfterASpaceThatIsHeldBack) {
    const std::map<std::string, std::string> cases{{" <end>", "Hi"},
                                                   {"i <end>", "H"},
                                                   {"<end>", "Hi "},
                                                   {" <end>b", "Hi"},
                                                   {"i <end>bc", "H"}};
    for (const auto& [stop, before] : cases) {
        GeneratedText text(decoders_of_bytes(), StopStrings({stop}, false));
        std::string joined;
        for (int64_t token :
             {int64_t('H'), int64_t('i'), int64_t(' '), int64_t(257), int64_t('b'), int64_t('c')})
            joined += text.append(token);
        EXPECT_TRUE(text.stopped()) << stop;
        EXPECT_EQ(joined + text.flush(), before) << stop;
    }
}

TEST(GeneratedText, AStopStringWithASpecialTokenIsFoundWhereItStandsInTheWhole) {
    const std::vector<int64_t> tokens{'a', ' ', '\'', 'n', 256, 257};
    size_t num_stopped = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        auto sequence = random_tokens(tokens, 60, seed);
        sequence.push_back('a');  // no space is held back at the end
        for (const std::string stop : {" <x>", " '<x>n", "<end> <x>", " n<x> ", " <x><x>'"}) {
            GeneratedText text(decoders_of_bytes(), StopStrings({stop}, false));
            std::string joined;
            for (int64_t token : sequence) joined += text.append(token);
            std::string whole = decoders_of_bytes().verbatim(sequence);
            const size_t found = whole.find(stop);
            num_stopped += found != std::string::npos;
            EXPECT_EQ(text.stopped(), found != std::string::npos) << stop << ", seed " << seed;
            whole = std::regex_replace(whole.substr(0, found), std::regex("<(x|end)>"), "");
            EXPECT_EQ(joined + text.flush(), whole) << stop << ", seed " << seed;
        }
    }
    EXPECT_GT(num_stopped, 100u);
}

TEST(GeneratedText, StreamsAsItDecodesWhereSpecialTokensStandInSpacesThatAreTakenAway) {
    const auto clean = [](const IncrementalDetokenizer::Decode& decode) {
        return [decode](const std::vector<int64_t>& tokens) {
            const std::string text = decode(tokens);
            return decode_cleaned({text.begin(), text.end()});
        };
    };
    const GeneratedText::Decoders cleaned{clean(decoders_of_bytes().shown),
                                          clean(decoders_of_bytes().verbatim)};
    const std::vector<int64_t> tokens{' ', '\'', 'n', 't', 'r', 'e', '.', 'x', 256, 257};
    for (unsigned seed = 0; seed < 300; ++seed) {
        const auto sequence = random_tokens(tokens, 60, seed);
        GeneratedText text(cleaned, StopStrings({" <x>q", "<x> q", " q", "n q"}, false));
        std::string joined;
        for (int64_t token : sequence) joined += text.append(token);
        EXPECT_EQ(joined + text.flush(), cleaned.shown(sequence)) << "seed " << seed;
    }
}

TEST(ChatHistory, RefusesWhatIsNoMessage) {
    ChatHistory history;
    EXPECT_THROW(history.append_json("[1]"), InvalidArgument);
    EXPECT_THROW(history.append_json("not json"), InvalidArgument);
    EXPECT_THROW(history.set_messages_json(R"({"role": "user"})"), InvalidArgument);
    EXPECT_THROW(history.pop(), OutOfRange);
    EXPECT_TRUE(history.empty());
}

TEST(ChatHistory, KeepsTheOrderOfKeysAndAsksForNone) {
    ChatHistory history;
    history.append_json(R"({"tool": 1, "content": "x", "a": {"c": 1, "b": 2}})");
    EXPECT_EQ(history.messages_json(), R"([{"tool":1,"content":"x","a":{"c":1,"b":2}}])");
    std::vector<std::pair<std::string, std::string>> plain;
    EXPECT_FALSE(history.as_plain(plain));
}

TEST(ChatHistory, IsPlainUntilToolsOrPartsAreUsed) {
    std::vector<std::pair<std::string, std::string>> plain;
    ChatHistory history;
    history.append("user", "hi");
    EXPECT_TRUE(history.as_plain(plain));
    EXPECT_EQ(plain.front(), (std::pair<std::string, std::string>("user", "hi")));
    ChatHistory with_tools = history;
    with_tools.set_tools_json(R"([{"name": "f"}])");
    EXPECT_FALSE(with_tools.as_plain(plain));
    history.append_json(R"({"role": "user", "content": [{"type": "text", "text": "a"}]})");
    EXPECT_FALSE(history.as_plain(plain));
}

TEST(ChatFormat, JoinsThePiecesOfATemplate) {
    const auto format = ChatFormat::from_json(nlohmann::json::parse(R"({
        "prefix": "<s>", "default_system": "[sys]", "generation_prompt": "A:",
        "roles": {"user": {"before": "U:", "after": "\n"}, "system": {"before": "S:", "after": "\n"}}
    })"));
    ASSERT_TRUE(format);
    EXPECT_EQ(format->render({{"user", "hi"}}, true), "<s>[sys]U:hi\nA:");
    EXPECT_EQ(format->render({{"system", "x"}, {"user", "hi"}}, false), "<s>S:x\nU:hi\n");
    EXPECT_THROW(format->render({{"tool", "x"}}, true), InvalidArgument);
    EXPECT_FALSE(ChatFormat::from_json(nullptr));
    EXPECT_TRUE(format->covers({{"user", "a"}, {"assistant", "b"}, {"user", "c"}}));
    EXPECT_TRUE(format->covers({{"system", "a"}, {"user", "b"}}));
    EXPECT_FALSE(format->covers({}));
    EXPECT_FALSE(format->covers({{"system", "a"}}));
    EXPECT_FALSE(format->covers({{"user", "a"}, {"user", "b"}}));
    EXPECT_FALSE(format->covers({{"user", "a"}, {"system", "b"}}));
}

}  // namespace
}  // namespace pagewheel
