#include "parsing/stream_parser.hpp"

#include <gtest/gtest.h>

#include <set>

#include "pagewheel/parsers.hpp"

namespace pagewheel {
namespace {

using Kind = ParseEvent::Kind;

/// Events as a text: content, (reasoning), name#id{arguments}, with ! after a call that is cut off.
std::string shown(const std::vector<ParseEvent>& events) {
    std::string text;
    for (const ParseEvent& event : events) {
        const std::string id = event.id.empty() ? "" : "#" + event.id;
        switch (event.kind) {
            case Kind::CONTENT:
            case Kind::ARGUMENTS:
                text += event.text;
                break;
            case Kind::REASONING:
                text += "(" + event.text + ")";
                break;
            case Kind::CALL_BEGIN:
                text += "@" + event.text + id + ":";
                break;
            case Kind::CALL_END:
                text += id + (event.complete ? ";" : "!");
                break;
        }
    }
    return text;
}

std::string parse(const std::string& family, const std::string& text,
                  StreamParser::Options options = {}) {
    StreamParser parser(find_message_format(family), std::move(options));
    Events events;
    parser.feed(text, events);
    parser.finish(events);
    return shown(events.all());
}

TEST(MessageFormats, HaveNamesOfTheirOwnAndMarkersThatAreNotInEachOther) {
    std::set<std::string> names;
    for (const MessageFormat& family : message_formats()) {
        EXPECT_TRUE(names.insert(family.name).second) << family.name;
        EXPECT_FALSE(family.template_signs.empty()) << family.name;
        std::vector<std::string> markers = family.dropped;
        for (const SectionMarker& section : section_markers(family))
            markers.push_back(section.text);
        if (family.reasoning)
            markers.insert(markers.end(), family.reasoning->open.begin(),
                           family.reasoning->open.end());
        for (size_t i = 0; i < markers.size(); ++i)
            for (size_t j = 0; j < markers.size(); ++j)
                EXPECT_TRUE(i == j || markers[i].find(markers[j]) == std::string::npos)
                    << markers[j] << " is in " << markers[i];
    }
    EXPECT_THROW(find_message_format("none"), InvalidArgument);
}

/// f's argument a, the text b, as the format writes it.
std::string written_arguments(const ArgumentFormat& format) {
    const std::string line = format.trims_lines ? "\n" : "";
    switch (format.kind) {
        case ArgumentFormat::Kind::JSON:
            return "{\"a\": \"b\"}";
        case ArgumentFormat::Kind::PYTHON:
            return "a='b'";
        case ArgumentFormat::Kind::QUOTED:
            return "{a:" + format.quote + "b" + format.quote + "}";
        case ArgumentFormat::Kind::TAGGED:
            return format.key_open + "a" + format.text_key_end + format.value_open + line + "b" +
                   line + format.value_close + "\n";
    }
    return "";
}

/// Two calls where there may be two.
std::string written(const CallFormat& format, size_t& num_calls) {
    const std::string call = format.before_name + "f" + format.after_name +
                             written_arguments(format.arguments) + format.after_arguments;
    const std::string more = format.has_one_call ? "" : format.separator + call;
    const std::string begin = format.trigger.empty() ? format.marker : format.trigger;
    const std::string section = begin + format.open + call + more + format.close;
    num_calls = format.has_one_call && !format.may_repeat ? 1 : 2;
    return format.may_repeat ? section + format.separator + section : section;
}

TEST(MessageFormats, WhatAnEntryDescribesIsReadAsItsCalls) {
    for (const MessageFormat& format : message_formats())
        for (const CallFormat& calls : format.calls) {
            size_t num_calls = 0;
            const std::string text = written(calls, num_calls);
            std::string expected;
            for (size_t i = 0; i < num_calls; ++i) expected += "@f:{\"a\": \"b\"};";
            const std::string before = format.has_channels || calls.marker.empty() ? "" : "Hm ";
            EXPECT_EQ(parse(format.name, before + text), before + expected) << text;
        }
}

TEST(StreamParser, TellsContentReasoningAndCallsApart) {
    EXPECT_EQ(parse("qwen",
                    "<think>why</think>\n\nHm <tool_call>\n{\"name\": \"f\", \"arguments\": "
                    "{\"a\": [1]}}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>"),
              "(why)\n\nHm @f:{\"a\": [1]};@g:{};");
    EXPECT_EQ(
        parse("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"x1\"}]"),
        "@f:{}#x1;");
    EXPECT_EQ(parse("mistral", "[TOOL_CALLS]f[CALL_ID]x1[ARGS]{}"), "@f#x1:{};");
}

TEST(StreamParser, GivesTextOutAsSoonAsItIsNoMarker) {
    StreamParser parser(find_message_format("qwen"));
    Events events;
    const auto feed = [&](const std::string& text) {
        parser.feed(text, events);
        return shown(events.take_all());
    };
    EXPECT_EQ(feed("a <tool"), "a ");
    EXPECT_EQ(feed("_call"), "");
    EXPECT_EQ(feed("s"), "<tool_calls");
    EXPECT_EQ(feed("<tool_call>{\"name\": \"f\", \"arg"), "");
    EXPECT_EQ(feed("uments\": {\"a"), "@f:{\"a");
    EXPECT_EQ(feed("\": 1}"), "\": 1}");
    EXPECT_EQ(feed("}"), ";");
}

TEST(StreamParser, HoldsABoundedBeginningOfACall) {
    StreamParser parser(find_message_format("qwen"));
    Events events;
    std::string text = "<tool_call>{\"name\": \"" + std::string(StreamParser::max_held, 'x');
    parser.feed(text, events);
    EXPECT_EQ(shown(events.all()), text);
}

TEST(StreamParser, PassesBytesThatAreNoTextAsTheyAre) {
    const std::string bytes = std::string("\xFF\x00\xC3", 3) + "<tool_call\xE2";
    EXPECT_EQ(parse("qwen", bytes), bytes);
    EXPECT_EQ(parse("qwen", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xFF\"}}"),
              "@f:{\"a\": \"\xFF\"};");
}

// In time of the square this would not end before the time that CI gives to all tests.
TEST(StreamParser, TakesMegabytesOfBracketsInLinearTime) {
    for (const char bracket : {'[', '{'}) {
        const std::string text(2'000'000, bracket);
        EXPECT_EQ(parse("llama3_json", text).size(), text.size());
    }
}

TEST(Parsers, PutWhatTheyFindIntoMessages) {
    std::string message =
        R"({"role": "assistant", "content": "<think>a</think><tool_call>{\"name\": \"f\"}"})";
    ToolCallParser("qwen").parse(message);
    EXPECT_EQ(message, R"({"role":"assistant","content":"","reasoning_content":"a","tool_calls":)"
                       R"([{"type":"function","function":{"name":"f","arguments":"{}"}}]})");
    std::string no_object = "[]", no_text = R"({"content": null})";
    EXPECT_THROW(ToolCallParser("qwen").parse(no_object), InvalidArgument);
    EXPECT_THROW(ReasoningParser().parse(no_text), InvalidArgument);
}

TEST(Parsers, GiveDeltasOfAStream) {
    ToolCallIncrementalParser parser("qwen");
    std::string delta = "{}";
    EXPECT_EQ(parser.parse(delta, "Hm <tool_call>{\"name\": \"f\", \"arguments\": {"), "Hm ");
    EXPECT_EQ(delta, R"({"tool_calls":[{"index":0,"type":"function",)"
                     R"("function":{"name":"f","arguments":"{"}}]})");
    delta = "{}";
    EXPECT_EQ(parser.parse(delta, "\"a"), "");
    EXPECT_EQ(delta, R"({"tool_calls":[{"index":0,"function":{"arguments":"\"a"}}]})");
    delta = "{}";
    EXPECT_EQ(parser.finish(delta), "");
    EXPECT_EQ(delta, R"({"tool_calls":[{"index":0,"complete":false}]})");
}

}  // namespace
}  // namespace pagewheel
