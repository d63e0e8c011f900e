// What is checked and translated before a grammar library is needed.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/check.hpp"
#include "grammar/ebnf.hpp"
#include "grammar/grammar_compiler.hpp"
#include "grammar/json_schema.hpp"
#include "grammar/llguidance_api.hpp"
#include "grammar/structured_output.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return "not refused";
}

GrammarSource translate(const Config::StructuralTag& part, const SpecialTokens& special = {}) {
    Config config;
    config.compound_grammar = part;
    return to_grammar_source(config, special, GrammarLimits());
}

TEST(ConstantText, SpecialTokensAreFoundAndTheLongestIsTaken) {
    const auto parts = split_at_special_tokens("a<x><xy>b", {{"<x>", 7}, {"<xy>", 8}, {"<xy", 9}});
    ASSERT_EQ(parts.size(), 4u);
    EXPECT_EQ(parts[0].text, "a");
    EXPECT_EQ(parts[1].token, 7);
    EXPECT_EQ(parts[2].token, 8);
    EXPECT_EQ(parts[3].text, "b");
}

TEST(ConstantText, AnEmptyTextIsOnePart) {
    EXPECT_EQ(split_at_special_tokens("", {{"<x>", 7}}).size(), 1u);
}

TEST(LarkText, StringsAreEscaped) {
    EXPECT_EQ(lark_string("a\"\\\n\x7f"), R"("a\"\\\n\u007f")");
}

TEST(LarkText, AnchorsAroundARegexAreDropped) {
    EXPECT_EQ(lark_regex("^a/b$"), R"(/a\/b/)");
    EXPECT_EQ(lark_regex(R"(a\$)"), R"(/a\$/)");
    EXPECT_EQ(lark_regex("^$"), "\"\"");
}

TEST(Ebnf, ErrorsTellLineAndColumn) {
    const auto parse = [](const std::string& text) {
        return refusal([&] { parse_ebnf(text, GrammarLimits()); });
    };
    EXPECT_EQ(parse("root ::= \"a\"\nb ::= [z-a]"),
              "EBNF, line 2, column 11: a range of characters whose end is before its begin");
    EXPECT_EQ(parse("root ::= \"a"), "EBNF, line 1, column 12: a text without its closing \"");
    EXPECT_EQ(parse("b ::= \"a\""), "EBNF: there is no rule 'root'");
    EXPECT_NE(parse("root ::= \"a\"{200000}").find("more than 100000 repetitions"),
              std::string::npos);
}

TEST(Ebnf, ParenthesesAreOnlySoDeep) {
    const std::string deep =
        "root ::= " + std::string(5000, '(') + "\"a\"" + std::string(5000, ')');
    EXPECT_NE(refusal([&] { parse_ebnf(deep, GrammarLimits()); }).find("more than 200 deep"),
              std::string::npos);
}

TEST(Ebnf, TheNumberOfPartsIsBounded) {
    GrammarLimits small;
    small.ebnf_parts = 10;
    EXPECT_NE(refusal([&] {
                  parse_ebnf("root ::= \"abcdefghijkl\"", small);
              }).find("more than 10 characters, classes and rules"),
              std::string::npos);
}

std::string in_parentheses(size_t depth, size_t stars) {
    std::string text(depth, '(');
    text += "\"a\"";
    for (size_t i = 0; i < depth; ++i) text += ')' + std::string(stars, '*');
    return text;
}

TEST(Ebnf, RepetitionsOfRepetitionsAreOnlySoDeep) {
    for (const std::string begin : {"root ::= ", "root ::= \"b\" root | "}) {
        const auto parse = [&](size_t depth, size_t stars) {
            const std::string text = begin + in_parentheses(depth, stars);
            return refusal([&] { parse_ebnf(text, GrammarLimits()); });
        };
        for (const size_t depth : {4, 150, 175, 198})
            EXPECT_NE(parse(depth, 199).find("together more than 700 deep"), std::string::npos);
        EXPECT_NE(parse(1, 100'000).find("together more than 700 deep"), std::string::npos);
        EXPECT_EQ(parse(198, 3), "not refused");
    }
}

/// Twice as deep takes about twice as long.
TEST(Ebnf, RecursiveRulesThatAreDeepAreTranslatedSoon) {
    std::string text = "root ::= ";
    for (int i = 0; i < 190; ++i) text += "(\"b\" | \"c\" ";
    text += "root";
    for (int i = 0; i < 190; ++i) text += ")*";
    const auto begin = std::chrono::steady_clock::now();
    translate(Config::EBNF{text});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(JsonSchema, OwnOptionsAreAddedAndTheTextIsKept) {
    const std::string prepared = prepare_json_schema(R"({"default":12345678901234567890123})", {});
    EXPECT_NE(prepared.find("whitespace_pattern"), std::string::npos);
    EXPECT_NE(prepared.find(R"("default":12345678901234567890123})"), std::string::npos);
    EXPECT_EQ(prepare_json_schema(R"({"x-guidance":{}})", {}), R"({"x-guidance":{}})");
    EXPECT_EQ(prepare_json_schema("true", {}), prepare_json_schema("{}", {}));
}

TEST(JsonSchema, NumbersThatADoubleWouldChangeAreRefusedWithTheirPlace) {
    const auto refused = [](const std::string& schema) {
        return refusal([&] { prepare_json_schema(schema, {}); });
    };
    EXPECT_EQ(refused(R"({"properties":{"a/b":{"const":1234567890123456789}}})"),
              "JSON schema: the number 1234567890123456789 cannot be kept exactly; at "
              "/properties/a~1b/const");
    for (const char* number :
         {"9007199254740993", "-9007199254740993", "9007199254740993.0", "0.12345678901234567890",
          "1152921504606846976", "9223372036854775807", "-9223372036854775808",
          "18446744073709551616", "123456789012345678901234567890", "1e-400",
          "1.00000000000000000001", "1e-99999999999999999999", "-1e30", "1e300", "1e19"}) {
        for (const char* keyword :
             {"const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
            EXPECT_NE(refused(concat(R"({"anyOf":[{")", keyword, "\":", number, "}]}"))
                          .find(concat("at /anyOf/0/", keyword)),
                      std::string::npos)
                << keyword << ' ' << number;
        EXPECT_NE(refused(concat(R"({"x":{"enum":[1,{"y":[)", number, "]}]}}")).find("at /x/enum"),
                  std::string::npos)
            << number;
    }
}

TEST(JsonSchema, NumbersThatADoubleKeepsAreAllowed) {
    for (const char* number : {"0", "-0.0", "0.1", "1e-300", "9007199254740991", "1e18", "-9e18",
                               "-1.50e2", "1000000000000000000", "0.1234567890123456"})
        for (const char* keyword : {"const", "minimum", "maximum", "multipleOf"})
            EXPECT_NO_THROW(prepare_json_schema(concat("{\"", keyword, "\":", number, '}'), {}))
                << keyword << ' ' << number;
    EXPECT_NO_THROW(prepare_json_schema(R"({"examples":[9007199254740993]})", {}));
    const auto refused = [](const char* type, const char* bound) {
        return refusal(
            [&] { prepare_json_schema(concat(R"({"type":")", type, R"(",")", bound, '}'), {}); });
    };
    for (const char* bound :
         {"maximum\":9223372036854775807", "maximum\":18446744073709551615", "maximum\":1e30",
          "exclusiveMaximum\":9223372036854775808", "exclusiveMaximum\":18446744073709551616"}) {
        EXPECT_EQ(refused("integer", bound), "not refused") << bound;
    }
    EXPECT_NE(refused("number", "maximum\":9223372036854775807"), "not refused");
    EXPECT_NE(refused("integer", "maximum\":9223372036854775806"), "not refused");
    EXPECT_NE(refused("integer", "exclusiveMaximum\":9223372036854775807"), "not refused");
}

TEST(JsonSchema, NumbersInLarkAreLookedAtToo) {
    const std::string lark = R"(start: a | b
a: %json {"const": 1}
b: "x" %json {"const": -9223372036854775808} "y"
)";
    const std::string expected =
        "JSON schema: the number -9223372036854775808 cannot be kept exactly; at "
        "/const";
    EXPECT_EQ(refusal([&] { translate(Config::Lark{lark}); }), expected);
    EXPECT_EQ(refusal([&] {
                  auto tag = std::make_shared<Config::Tag>();
                  tag->begin = "<";
                  tag->content = Config::Lark{lark};
                  tag->end = ">";
                  translate(tag);
              }),
              expected);
    EXPECT_NO_THROW(translate(Config::Lark{"start: %json {\"const\": 12}"}));
    EXPECT_EQ(
        refusal([&] { translate(Config::Lark{"start: %json " + std::string(100'000, '[')}); }),
        "a JSON schema of more than 100 levels");
}

// With a pointer for each value this would take hundreds of gigabytes of copies.
TEST(JsonSchema, ManyValuesUnderALongKeyAreLookedAtInTimeOfTheirNumber) {
    std::string values = "0";
    for (int i = 0; i < 300'000; ++i) values += ",0";
    const std::string key(1'000'000, '~');
    EXPECT_NO_THROW(check_numbers(parse_schema("{\"" + key + "\":[" + values + "]}")));
    EXPECT_EQ(refusal([&] {
                  check_numbers(parse_schema("{\"a~/b\":[{},{\"const\":1234567890123456789}]}"));
              }),
              "JSON schema: the number 1234567890123456789 cannot be kept exactly; at "
              "/a~0~1b/1/const");
}

TEST(JsonSchema, WhatIsTooDeepOrTooLargeIsRefusedWithNumbers) {
    std::string deep = "true";
    for (int i = 0; i < 300; ++i) deep = R"({"not":)" + deep + '}';
    EXPECT_EQ(refusal([&] { prepare_json_schema(deep, {}); }),
              "a JSON schema of more than 100 levels");
    GrammarLimits small;
    small.text_bytes = 10;
    EXPECT_EQ(refusal([&] { prepare_json_schema(R"({"type":"object"})", small); }),
              "a JSON schema of 17 bytes; allowed are 10");
}

TEST(JsonSchema, PlacesOfKeywordsAreJsonPointers) {
    const std::string schema =
        R"({"properties":{"a/b":{"not":{}},"not":{"items":[{"not":true}]}},"required":["not"]})";
    EXPECT_EQ(refused_places(schema), "/properties/a~1b/not, /properties/not/items/0/not");
    EXPECT_EQ(refused_places(R"({"$ref":"#/$defs/a"})"), "/$ref");
    EXPECT_EQ(refused_places(R"({"$ref":"#/$defs/a","$defs":{"a":{"minimum":1}}})"), "");
}

TEST(StructuredOutput, ExactlyOneMemberIsSet) {
    Config config;
    EXPECT_NE(refusal([&] { config.validate(); }).find("has 0 of"), std::string::npos);
    config.regex = "a";
    config.json_schema = "{}";
    EXPECT_NE(refusal([&] { config.validate(); }).find("has 2 of"), std::string::npos);
}

TEST(StructuredOutput, SpecialTokensInConstantsAreNamed) {
    const GrammarSource source = translate(Config::ConstString{"<|x|>a"}, {{"<|x|>", 5}});
    EXPECT_NE(source.text.find("<[5]>"), std::string::npos);
}

TEST(StructuredOutput, PartsInThemselvesAreRefused) {
    auto concat = std::make_shared<Config::Concat>();
    concat->elements = {Config::ConstString{"a"}, concat};
    EXPECT_EQ(refusal([&] { translate(concat); }),
              "a grammar whose parts lie more than 64 deep in each other");
    concat->elements.clear();  // it held itself
}

TEST(StructuredOutput, FreeTextMustEndSomewhere) {
    auto concat = std::make_shared<Config::Concat>();
    concat->elements = {Config::AnyText{}, Config::JSONSchema{"{}"}};
    EXPECT_NE(refusal([&] { translate(concat); }).find("AnyText must be the last part"),
              std::string::npos);
}

TEST(StructuredOutput, QwensParametersNeedTheTypeObject) {
    const auto refused = [](const std::string& type) {
        const std::string schema = R"({"type":)" + type + R"(,"properties":{}})";
        return refusal([&] { translate(Config::QwenXMLParametersFormat{schema}); });
    };
    for (const char* type : {R"(["object"])", "3", "null", R"("array")"})
        EXPECT_NE(refused(type).find("needs a schema of an object"), std::string::npos) << type;
    EXPECT_EQ(refused(R"("object")"), "not refused");
}

TEST(StructuredOutput, EachTagHasOneTrigger) {
    auto tags = std::make_shared<Config::TriggeredTags>();
    tags->tags = {{"<a>", Config::AnyText{}, "</a>"}};
    tags->triggers = {"<b"};
    EXPECT_NE(refusal([&] { translate(tags); }).find("begins with none of the triggers"),
              std::string::npos);
    tags->triggers = {"<", "<a"};
    EXPECT_NE(refusal([&] { translate(tags); }).find("has several triggers"), std::string::npos);
}

TEST(LateThreads, LateWorkRunsOnAndIsCounted) {
    LateThreads threads(1 << 20, 1);
    const auto may_end = std::make_shared<std::atomic<bool>>(false);
    const auto wait = [may_end] {
        while (!*may_end) std::this_thread::yield();
    };
    const auto soon = std::chrono::milliseconds(1);
    EXPECT_EQ(threads.run(wait, soon, soon), LateThreads::Result::LATE);
    EXPECT_EQ(threads.run([] {}, soon, soon), LateThreads::Result::TOO_MANY_LATE);
    *may_end = true;
    while (threads.run([] {}, std::chrono::seconds(10), soon) != LateThreads::Result::DONE)
        std::this_thread::yield();
}

TEST(LateThreads, ExceptionsReachTheCaller) {
    LateThreads threads(1 << 20, 1);
    const auto long_time = std::chrono::seconds(10);
    EXPECT_THROW(threads.run([] { throw GrammarError("x"); }, long_time, long_time), GrammarError);
}

TEST(LateThreads, TimeWithoutAProcessorCountsForNothing) {
    LateThreads threads(1 << 20, 1);
    const auto begin = std::chrono::steady_clock::now();
    const auto time = std::chrono::milliseconds(50);
    const auto wait = [=] { std::this_thread::sleep_until(begin + 3 * time); };
    EXPECT_EQ(threads.run(wait, time, time), LateThreads::Result::DONE);
}

TEST(LateThreads, WorkThatIsNotQuickGivesWay) {
    LateThreads threads(1 << 20, 1);
    const auto gave_way = std::make_shared<std::atomic<bool>>(false);
    const auto work = [gave_way] {
        while (sched_getscheduler(0) != SCHED_IDLE) {
        }
        *gave_way = true;
    };
    EXPECT_EQ(threads.run(work, std::chrono::seconds(100), std::chrono::milliseconds(1)),
              LateThreads::Result::DONE);
    EXPECT_TRUE(*gave_way);
}

}  // namespace
}  // namespace pagewheel
