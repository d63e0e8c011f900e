#include "pipelines/text_rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;

const std::vector<std::string> vocabulary{"a", "b", " ", "\n", "ab", " a", "ba", "aab", "b a"};

/// The longest token that fits, again and again.
Tokens longest_first(const std::string& text) {
    Tokens tokens;
    for (size_t at = 0; at < text.size();) {
        size_t best = vocabulary.size();
        for (size_t id = 0; id < vocabulary.size(); ++id)
            if (text.compare(at, vocabulary[id].size(), vocabulary[id]) == 0 &&
                (best == vocabulary.size() || vocabulary[id].size() > vocabulary[best].size()))
                best = id;
        tokens.push_back(int64_t(best));
        at += vocabulary[best].size();
    }
    return tokens;
}

/// With `change` done to each text before.
Encode encode_with(const std::function<std::string(std::string)>& change) {
    return [=](const std::vector<std::string>& texts) {
        std::vector<Tokens> rows;
        for (const std::string& text : texts) rows.push_back(longest_first(change(text)));
        return rows;
    };
}

TEST(WordTokens, AreThoseWithAndWithoutASpaceWhateverTheTokenizerPutsBefore) {
    for (const std::string before : {"", " "}) {
        const Encode encode = encode_with([=](const std::string& text) { return before + text; });
        EXPECT_EQ(word_tokens(encode, {"ab"}), (std::vector<Tokens>{{4}, {5, 1}})) << before;
        EXPECT_EQ(word_tokens(encode, {"b", "ab", "a"}),
                  (std::vector<Tokens>{{0}, {1}, {2, 1}, {4}, {5}, {5, 1}}));
    }
}

TEST(WordTokens, AreThePlainOnesWhereALineBreakIsNoTextByItself) {
    const Encode encode = encode_with([](std::string text) {
        text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
        return text;
    });
    EXPECT_EQ(word_tokens(encode, {"ab"}), (std::vector<Tokens>{{4}, {5, 1}}));
}

}  // namespace
}  // namespace pagewheel
