#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "pagewheel/chat_history.hpp"
#include "text/chat_format.hpp"
#include "text/incremental_detokenizer.hpp"
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
    EXPECT_THROW(check_utf8("a\xFF", "the prompt"), std::invalid_argument);
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

TEST(ChatHistory, RefusesMessagesWithoutARole) {
    ChatHistory history;
    EXPECT_THROW(history.append_json(R"({"content": "x"})"), std::invalid_argument);
    EXPECT_THROW(history.append_json("not json"), std::invalid_argument);
    EXPECT_THROW(history.set_messages_json(R"({"role": "user"})"), std::invalid_argument);
    EXPECT_THROW(history.pop(), std::out_of_range);
    EXPECT_TRUE(history.empty());
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
    EXPECT_THROW(format->render({{"tool", "x"}}, true), std::invalid_argument);
    EXPECT_FALSE(ChatFormat::from_json(nullptr));
}

}  // namespace
}  // namespace pagewheel
