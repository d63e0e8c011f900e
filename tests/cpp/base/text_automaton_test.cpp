#include "base/text_automaton.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

namespace pagewheel {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TEST(TextAutomaton, KnowsAfterEachByteWhatEndsAndWhatHasBegun) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        const size_t num_letters = 1 + random() % 3;
        const auto letter = [&] { return "a\xFF\x01"[random() % num_letters]; };
        std::set<std::string> texts;
        for (size_t i = random() % 8; i > 0; --i) {
            std::string text;
            for (size_t size = 1 + random() % 7; text.size() < size;) text += letter();
            texts.insert(text);
        }
        const TextAutomaton automaton(texts);
        TextAutomaton::State state = TextAutomaton::start;
        std::string all;
        for (size_t i = 0; i < 40; ++i) {
            all += letter();
            state = automaton.next(state, all.back());
            size_t longest = 0, shortest = 0, begun = 0;
            for (const std::string& text : texts) {
                if (ends_with(all, text)) {
                    longest = std::max(longest, text.size());
                    shortest = shortest ? std::min(shortest, text.size()) : text.size();
                }
                for (size_t size = 1; size < text.size(); ++size)
                    if (ends_with(all, text.substr(0, size))) begun = std::max(begun, size);
            }
            ASSERT_EQ(automaton.longest_match(state), longest) << all;
            ASSERT_EQ(automaton.shortest_match(state), shortest) << all;
            ASSERT_EQ(automaton.num_begun(state), begun) << all;
        }
    }
}

TEST(TextAutomaton, TakesNoMoreThan80BytesForAByteOfItsTexts) {
    // 200,001 states; a vector that grows by doubling would have room for 262,144.
    const std::string text(200000, 'a');
    const auto num_bytes = [] {
        const struct mallinfo2 info = mallinfo2();
        return info.uordblks + info.hblkhd;
    };
    const size_t before = num_bytes();
    const TextAutomaton automaton({text});
    EXPECT_LE(num_bytes() - before, 80 * text.size() + 50000);
    EXPECT_EQ(automaton.num_begun(automaton.next(TextAutomaton::start, 'a')), 1u);
}

}  // namespace
}  // namespace pagewheel
