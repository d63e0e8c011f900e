#include <gtest/gtest.h>

#include "parsing/argument_reader.hpp"

namespace pagewheel {
namespace {

/// DONE with the last byte, and not before.
bool is_whole(const std::string& text) {
    ValueReader reader;
    std::string json;
    for (size_t i = 0; i < text.size(); ++i) {
        const ReadStep step = reader.take(text[i], json);
        if (step == ReadStep::REFUSED) return false;
        if (step == ReadStep::DONE) return i + 1 == text.size();
    }
    return false;
}

TEST(JsonValues, TakesWhatIsJson) {
    for (const char* text :
         {"{}", "[]", "\"\"", R"({"a": 1})", R"( { "a" : [ 1 , -0.5e+3 , true , false , null ] } )",
          R"(["\"\\\/\b\f\n\r\t\u00e9", {"": {}}])", "[0, 10, -1, 1E5, 0.0]", "[\"\n\"]"}) {
        std::string trimmed = text;
        while (trimmed.back() == ' ') trimmed.pop_back();
        EXPECT_TRUE(is_whole(trimmed)) << text;
    }
}

TEST(JsonValues, RefusesWhatIsNone) {
    for (const char* text :
         {"}",         "x",           "1",      "{1}",       "{a: 1}",        "{'a': 1}",
          "[1,]",      "{\"a\": 1,}", "[01]",   "[1.]",      "[.5]",          "[+1]",
          "[1e]",      "[tru]",       "[nul1]", "[\"\\x\"]", "[\"\\u00g0\"]", "[1 2]",
          "{\"a\" 1}", "[}",          "{]",     "[--1]",     "{\"a\":}",      "[,]"})
        EXPECT_FALSE(is_whole(text)) << text;
}

TEST(JsonValues, BoundsTheDepth) {
    EXPECT_TRUE(is_whole(std::string(100, '[') + std::string(100, ']')));
    EXPECT_FALSE(is_whole(std::string(101, '[') + std::string(101, ']')));
}

}  // namespace
}  // namespace pagewheel
