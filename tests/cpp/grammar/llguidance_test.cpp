// What is expected of the library, and what is made of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/check.hpp"
#include "grammar/llguidance_fixture.hpp"

namespace pagewheel {
namespace {

using Config = StructuredOutputConfig;

TEST_F(Llguidance, StopTokensMayComeWhereTheTextMayEnd) {
    const auto matcher = compiler.compile(regex("ab?"))->start({'!', 256});
    EXPECT_FALSE(allows(*matcher, 256));
    EXPECT_TRUE(accepts(*matcher, "a"));
    EXPECT_TRUE(matcher->is_accepting());
    EXPECT_TRUE(allows(*matcher, 256));
    EXPECT_FALSE(allows(*matcher, '!'));  // it would become part of the text
    EXPECT_FALSE(allows(*matcher, 257));
    EXPECT_FALSE(matcher->accept('!'));
    EXPECT_TRUE(matcher->accept(256));
    EXPECT_TRUE(matcher->is_finished());
    EXPECT_FALSE(matcher->accept('b'));
    matcher->roll_back(1);
    EXPECT_TRUE(accepts(*matcher, "b"));
    EXPECT_TRUE(matcher->is_finished());
}

TEST_F(Llguidance, AStopTokenThatIsTextDoesNotCutATextShort) {
    const auto matcher = compiler.compile(regex("a\\nb"))->start({'\n'});
    EXPECT_TRUE(accepts(*matcher, "a"));
    EXPECT_FALSE(matcher->accept('\n'));
}

TEST_F(Llguidance, SpecialTokensComeOnlyWhereTheyAreNamed) {
    Config config;
    config.compound_grammar = Config::ConstString{"a<|tool|>b<|end|>"};
    const auto matcher = compiler.compile(config)->start({});
    EXPECT_FALSE(allows(*matcher, 257));
    EXPECT_TRUE(accepts(*matcher, "a"));
    EXPECT_FALSE(accepts(*matcher, "<"));
    EXPECT_TRUE(allows(*matcher, 257));
    EXPECT_TRUE(matcher->accept(257));
    EXPECT_TRUE(accepts(*matcher, "b"));
    EXPECT_TRUE(matcher->accept(256));
    EXPECT_TRUE(matcher->is_accepting());
}

TEST_F(Llguidance, AGrammarOfNothingEndsAtOnce) {
    const auto matcher = compiler.compile(regex(""))->start({});
    EXPECT_TRUE(matcher->is_accepting());
    EXPECT_TRUE(allows(*matcher, 256));
    EXPECT_FALSE(allows(*matcher, 'a'));
}

size_t count_kept(const std::vector<std::weak_ptr<CompiledGrammar>>& all) {
    return size_t(std::count_if(all.begin(), all.end(),
                                [](const auto& grammar) { return !grammar.expired(); }));
}

TEST_F(Llguidance, GrammarsAreKeptByTheirText) {
    const auto first = compiler.compile(regex("a"));
    EXPECT_EQ(compiler.compile(regex("a")), first);
    EXPECT_NE(compiler.compile(regex("b")), first);
    std::vector<std::weak_ptr<CompiledGrammar>> all;
    for (int i = 0; i < 100; ++i) all.push_back(compiler.compile(regex("x" + std::to_string(i))));
    EXPECT_EQ(count_kept(all), GrammarLimits().cached_grammars);
}

TEST_F(Llguidance, FewLongGrammarsAreKept) {
    GrammarLimits limits;
    limits.cached_bytes = 2500;
    GrammarCompiler small(byte_vocabulary(), limits);
    const auto of_size = [](size_t size, char c) { return regex(std::string(size, c)); };
    std::weak_ptr<CompiledGrammar> first = small.compile(of_size(1000, 'a'));
    std::weak_ptr<CompiledGrammar> second = small.compile(of_size(1000, 'b'));
    EXPECT_EQ(small.compile(of_size(1000, 'a')), first.lock());  // used last
    std::weak_ptr<CompiledGrammar> third = small.compile(of_size(1000, 'c'));
    EXPECT_EQ(count_kept({first, second, third}), 2u);
    EXPECT_FALSE(first.expired());
    const auto last = small.compile(of_size(5000, 'd'));  // kept, whatever its size
    EXPECT_EQ(count_kept({first, second, third}), 0u);
    EXPECT_EQ(small.compile(of_size(5000, 'd')), last);
}

TEST_F(Llguidance, TheTimeOfAGrammarIsNotThatOfTheVocabulary) {
    GrammarVocabulary large = byte_vocabulary();
    for (int i = 0; i < 100'000; ++i) large.tokens.push_back(concat("token ", i));
    GrammarCompiler first(large);
    first.compile(regex("a"));
    GrammarLimits limits;
    limits.compile_time =
        std::chrono::duration_cast<std::chrono::milliseconds>(first.preparation_time() / 2);
    EXPECT_NO_THROW(GrammarCompiler(large, limits).compile(regex("a")));
}

TEST_F(Llguidance, SequencesOfOneGrammarRunInSeveralThreads) {
    const auto grammar = compiler.compile(regex("([a-z]+ )*[0-9]{3}"));
    std::vector<std::thread> threads;
    std::vector<int> accepted(4);
    for (size_t i = 0; i < accepted.size(); ++i)
        threads.emplace_back([&, i] {
            for (int round = 0; round < 50; ++round) {
                const auto matcher = grammar->start({});
                accepted[i] += accepts(*matcher, "hello you 123") && matcher->is_finished();
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const int count : accepted) EXPECT_EQ(count, 50);
}

TEST_F(Llguidance, ALongConstantIsForcedAsAWhole) {
    const std::string text(5000, 'x');
    Config config;
    config.compound_grammar = Config::ConstString{text};
    const auto matcher = compiler.compile(config)->start({});
    EXPECT_EQ(matcher->jump_forward_tokens(), std::vector<int64_t>(5000, 'x'));
    EXPECT_TRUE(accepts(*matcher, text));
    EXPECT_EQ(matcher->jump_forward_tokens(), std::vector<int64_t>());
}

TEST_F(Llguidance, OneThatIsCancelledFailsAlone) {
    const auto grammar = compiler.compile(regex("[a-z]+"));
    const auto cancelled = grammar->start({}), other = grammar->start({});
    EXPECT_TRUE(accepts(*cancelled, "ab"));
    cancelled->cancel();
    std::vector<uint32_t> mask(cancelled->mask_words());
    EXPECT_THROW(cancelled->compute_mask(mask.data()), GrammarFailure);
    EXPECT_THROW(cancelled->is_accepting(), GrammarFailure);
    EXPECT_TRUE(allows(*other, 'a'));
    EXPECT_FALSE(grammar->is_spent());
}

TEST_F(Llguidance, TooManyTokensTakenBackAreRefused) {
    const auto matcher = compiler.compile(regex("aaa"))->start({});
    EXPECT_TRUE(accepts(*matcher, "aa"));
    EXPECT_THROW(matcher->roll_back(3), InvalidArgument);
    matcher->roll_back(2);
    EXPECT_EQ(matcher->token_count(), 0u);
}

TEST(LlguidanceLibrary, OneThatIsNotThereNamesWhatToInstall) {
#ifdef PAGEWHEEL_LINKS_LLGUIDANCE
    GTEST_SKIP() << "it is linked";
#endif
    if (std::getenv("PAGEWHEEL_TEST_LLGUIDANCE")) GTEST_SKIP() << "it may be loaded already";
    try {
        llguidance::load();
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("pip install \"llguidance>=1.9.0,<1.10\""),
                  std::string::npos);
    }
}

}  // namespace
}  // namespace pagewheel
