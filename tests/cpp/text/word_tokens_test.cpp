#include "text/word_tokens.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

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

std::string text_of(const Tokens& tokens) {
    std::string text;
    for (const int64_t token : tokens) text += vocabulary[size_t(token)];
    return text;
}

TEST(TokensWithText, HaveItAndBeginInTheirFirstToken) {
    const Encode encode = encode_with([](const std::string& text) { return text; });
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
        std::string wanted;
        for (size_t i = 1 + random() % 4; i > 0; --i) wanted += "ab "[random() % 3];
        const auto found = tokens_with_text(encode, vocabulary, wanted);
        std::set<int64_t> firsts;
        for (const Tokens& tokens : found) {
            firsts.insert(tokens.front());
            const size_t at = text_of(tokens).find(wanted);
            ASSERT_NE(at, std::string::npos) << wanted;
            const size_t first_size = vocabulary[size_t(tokens.front())].size();
            EXPECT_LT(at, first_size);
            EXPECT_EQ(tokens.size() == 1, at + wanted.size() <= first_size) << wanted;
        }
        // Wherever it begins within a token, that token is among them.
        for (size_t id = 0; id < vocabulary.size(); ++id) {
            bool begins = false;
            for (size_t at = 0; at < vocabulary[id].size(); ++at) {
                const size_t size = std::min(wanted.size(), vocabulary[id].size() - at);
                begins |= vocabulary[id].compare(at, size, wanted, 0, size) == 0;
            }
            EXPECT_EQ(firsts.count(int64_t(id)) == 1, begins) << wanted << " in " << vocabulary[id];
        }
    }
}

}  // namespace
}  // namespace pagewheel
