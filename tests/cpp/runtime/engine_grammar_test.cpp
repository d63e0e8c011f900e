// Requests with a grammar: what is generated is of it, and what it cannot do ends one sequence.
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "runtime/grammar_masks.hpp"
#include "support/engine_fixture.hpp"
#include "support/list_grammar.hpp"

namespace pagewheel {
namespace {

constexpr int64_t stop = 99;

class EngineGrammar : public EngineTest {
protected:
    void SetUp() override {
        compile_grammar = [this](const GenerationConfig&) {
            return std::make_shared<SequenceGrammar>(std::make_unique<ListMatcher>(grammar), this);
        };
        make();
    }

    static GenerationConfig with_grammar(GenerationConfig config) {
        config.set_eos_token_id(stop);
        config.structured_output_config.emplace().regex = "the list of the fixture";
        return config;
    }
    static GenerationConfig samples(size_t count, size_t num_sequences) {
        GenerationConfig config = greedy(count);
        config.do_sample = true;
        config.num_return_sequences = num_sequences;
        config.rng_seed = 5;
        return config;
    }
    static GenerationConfig beams(size_t count, size_t num_beams) {
        GenerationConfig config = greedy(count);
        config.num_beams = num_beams;
        config.num_return_sequences = num_beams;
        return config;
    }
    bool allows(Tokens tokens) const {
        if (!tokens.empty() && tokens.back() == stop) tokens.pop_back();
        return std::find(grammar.texts.begin(), grammar.texts.end(), tokens) != grammar.texts.end();
    }

    ListMatcher::Grammar grammar{{{5, 9, 7}, {5, 9, 8}}, {stop}};
};

Reason reason_of(const GenerationHandle& handle, size_t index = 0) {
    return handle.outputs_so_far().at(index).finish_reason;
}

TEST_F(EngineGrammar, GeneratesWhatTheGrammarAllowsAndOthersWhatTheyWould) {
    const auto free = submit({1}, greedy(4));
    const auto bound = submit({1}, with_grammar(greedy(10)));
    finish();
    EXPECT_EQ(generated(free), Tokens({2, 3, 4, 5}));
    EXPECT_EQ(generated(bound), Tokens({5, 9, 7, stop}));
    EXPECT_EQ(reason_of(bound), Reason::STOP);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineGrammar, TakesTheModelsChoiceOfWhatIsAllowed) {
    grammar.texts = {{40}, {60}, {50}};
    make();
    model->next = [](int64_t) { return 60; };
    const auto handle = submit({1}, with_grammar(greedy(10)));
    finish();
    EXPECT_EQ(generated(handle), Tokens({60, stop}));
}

TEST_F(EngineGrammar, TokensThatTheVocabularyLacksAreBanned) {
    grammar.num_tokens = 64;  // the model has logits for 100
    grammar.stops = {63};
    make();
    model->next = [](int64_t) { return 80; };
    GenerationConfig config = with_grammar(greedy(10));
    config.set_eos_token_id(63);
    const auto handle = submit({1}, config);
    finish();
    EXPECT_EQ(generated(handle), Tokens({5, 9, 7, 63}));
}

TEST_F(EngineGrammar, StopsAtItsLengthWithinTheGrammar) {
    const auto handle = submit({1}, with_grammar(greedy(2)));
    finish();
    EXPECT_EQ(generated(handle), Tokens({5, 9}));
    EXPECT_EQ(reason_of(handle), Reason::LENGTH);
}

TEST_F(EngineGrammar, AFailureEndsItsSequenceAndNoOther) {
    grammar.before_mask = [](const Tokens& tokens) {
        if (tokens.size() == 2) throw GrammarFailure("a limit is reached");
    };
    make();
    const auto failing = submit({1}, with_grammar(greedy(10)));
    const auto other = submit({1}, greedy(5));
    finish();
    EXPECT_EQ(generated(failing), Tokens({5, 9}));
    EXPECT_EQ(reason_of(failing), Reason::ERROR);
    EXPECT_EQ(failing.outputs_so_far().at(0).stop_reason, StopReason("a limit is reached"));
    EXPECT_EQ(failing.get_status(), Status::FINISHED);
    EXPECT_EQ(generated(other), Tokens({2, 3, 4, 5, 6}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineGrammar, AnEndThatNoTokenSaysIsAStop) {
    grammar.stops = {};
    make();
    const auto handle = submit({1}, with_grammar(greedy(10)));
    finish();
    EXPECT_EQ(generated(handle), Tokens({5, 9, 7}));
    EXPECT_EQ(reason_of(handle), Reason::STOP);
}

TEST_F(EngineGrammar, BansThatLeaveNothingOfItEndTheSequence) {
    GenerationConfig config = with_grammar(greedy(10));
    config.suppress_tokens = {9};
    const auto handle = submit({1}, config);
    finish();
    EXPECT_EQ(generated(handle), Tokens({5}));
    EXPECT_EQ(reason_of(handle), Reason::ERROR);
}

TEST_F(EngineGrammar, EachSampleGoesItsOwnWay) {
    grammar.texts.clear();
    for (int64_t a = 10; a < 14; ++a)
        for (int64_t b = 20; b < 24; ++b) grammar.texts.push_back({a, b, 30});
    make();
    const auto handle = submit({1}, with_grammar(samples(10, 8)));
    finish();
    std::set<Tokens> found;
    for (const GenerationOutput& output : handle.outputs_so_far()) {
        EXPECT_TRUE(allows(output.generated_ids));
        EXPECT_EQ(output.finish_reason, Reason::STOP);
        found.insert(output.generated_ids);
    }
    EXPECT_GT(found.size(), 3u);
}

TEST_F(EngineGrammar, ASampleThatFailsLeavesTheOthers) {
    grammar.texts = {{10, 20}, {10, 21}, {11, 20}, {11, 21}};
    grammar.before_mask = [](const Tokens& tokens) {
        if (tokens == Tokens{10}) throw GrammarFailure("not after 10");
    };
    make();
    const auto handle = submit({1}, with_grammar(samples(10, 8)));
    finish();
    size_t num_failed = 0;
    for (const GenerationOutput& output : handle.outputs_so_far()) {
        const bool fails = output.generated_ids.front() == 10;
        num_failed += fails;
        EXPECT_EQ(output.finish_reason, fails ? Reason::ERROR : Reason::STOP);
        EXPECT_EQ(output.generated_ids.size(), fails ? 1u : 3u);
    }
    EXPECT_GT(num_failed, 0u);
    EXPECT_LT(num_failed, 8u);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineGrammar, EveryBeamIsOfIt) {
    grammar.texts = {{10, 20, 30}, {10, 21, 31}, {11, 22}, {12, 23, 33, 43}};
    make();
    const auto handle = submit({1}, with_grammar(beams(10, 4)));
    finish();
    std::set<Tokens> found;
    for (const GenerationOutput& output : handle.outputs_so_far()) {
        EXPECT_TRUE(allows(output.generated_ids));
        EXPECT_EQ(output.finish_reason, Reason::STOP);
        found.insert(output.generated_ids);
    }
    EXPECT_EQ(found.size(), 4u);
}

TEST_F(EngineGrammar, BeamsThatFailAreLostAndTheLastIsCutShort) {
    grammar.texts = {{10, 20, 30}, {11, 21, 31}};
    grammar.before_mask = [](const Tokens& tokens) {
        if (tokens == Tokens{10, 20}) throw GrammarFailure("here");
    };
    make();
    const auto one = submit({1}, with_grammar(beams(10, 2)));
    finish();
    ASSERT_EQ(one.outputs_so_far().size(), 1u);
    EXPECT_EQ(generated(one), Tokens({11, 21, 31, stop}));

    grammar.before_mask = [](const Tokens& tokens) {
        if (tokens.size() == 2) throw GrammarFailure("here");
    };
    make();
    const auto all = submit({1}, with_grammar(beams(10, 2)));
    finish();
    EXPECT_EQ(reason_of(all), Reason::ERROR);
    EXPECT_EQ(generated(all).size(), 2u);
}

TEST_F(EngineGrammar, GoesOnWhereItWasAfterAPreemption) {
    grammar.texts = {{}};
    for (int64_t i = 0; i < 30; ++i) grammar.texts.front().push_back(i % 2 == 0 ? 10 + i : 50);
    SchedulerConfig small = scheduler();
    small.num_kv_blocks = 12;
    make(small);
    std::vector<GenerationHandle> handles;
    GenerationConfig config = with_grammar(greedy(40));
    config.logprobs = 1;  // a step for each token
    for (int64_t i = 0; i < 3; ++i) handles.push_back(submit({1 + i}, config));
    finish();
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    for (const GenerationHandle& handle : handles) EXPECT_TRUE(allows(generated(handle)));
}

TEST_F(EngineGrammar, ARefusedOneIsRefusedWhenItIsAdded) {
    compile_grammar = [](const GenerationConfig&) -> std::shared_ptr<const SequenceGrammar> {
        throw GrammarError("line 1, column 3: no");
    };
    make();
    EXPECT_THROW(submit({1}, with_grammar(greedy(3))), GrammarError);
    EXPECT_FALSE(engine->has_work());
}

TEST_F(EngineGrammar, ASlowOneHoldsNoOtherRequest) {
    std::promise<void> may_end;
    compile_grammar = [end = may_end.get_future().share(),
                       compile = compile_grammar](const GenerationConfig& config) {
        end.wait();
        return compile(config);
    };
    make();
    const auto other = submit({1}, greedy(5));
    std::thread adding([&] { submit({1}, with_grammar(greedy(10))); });
    finish();
    EXPECT_EQ(generated(other).size(), 5u);
    may_end.set_value();
    adding.join();
    EXPECT_TRUE(engine->has_work());
    finish();
}

TEST_F(EngineGrammar, TheTimeToCompileIsMeasured) {
    const auto handle = submit({1}, with_grammar(greedy(3)));
    const auto without = submit({1}, greedy(3));
    finish();
    EXPECT_EQ(handle.get_perf_metrics().raw_metrics.grammar_compile_times.size(), 1u);
    EXPECT_EQ(without.get_perf_metrics().raw_metrics.grammar_compile_times.size(), 0u);
}

/// Each a branch of one token, then a span that is forced.
std::vector<Tokens> texts_with_spans() {
    std::vector<Tokens> texts;
    for (int64_t a = 10; a < 13; ++a)
        for (int64_t b = 40; b < 43; ++b)
            texts.push_back({70, 71, 72, a, 50, 51, 52, 53, 54, b, 60, 61, 62});
    return texts;
}

class JumpForwardTokens : public EngineGrammar {
protected:
    void SetUp() override {
        grammar.texts = texts_with_spans();
        EngineGrammar::SetUp();
    }
    /// With log-probabilities the model is asked for each token.
    static GenerationConfig one_by_one(GenerationConfig config) {
        config.logprobs = 1;
        return config;
    }
    size_t steps_of(const GenerationConfig& config, Tokens& tokens) {
        make();
        const auto handle = submit({1}, config);
        size_t count = 0;
        for (; engine->has_work(); ++count) engine->step();
        tokens = generated(handle);
        return count;
    }
};

TEST_F(JumpForwardTokens, AreThoseThatTheModelWouldBeAskedForInFewerSteps) {
    for (const GenerationConfig& config : {greedy(20), samples(20, 1)}) {
        Tokens at_once, each;
        const size_t num_steps = steps_of(with_grammar(config), at_once);
        EXPECT_EQ(steps_of(one_by_one(with_grammar(config)), each), 14u);
        EXPECT_EQ(num_steps, 3u);  // the prompt and its forced ones, the first choice, the second
        EXPECT_EQ(at_once, each);
        EXPECT_EQ(at_once.back(), stop);
        EXPECT_EQ(num_free(), num_blocks);
    }
}

TEST_F(JumpForwardTokens, AreCountedAndHaveLogProbabilities) {
    const auto handle = submit({1}, with_grammar(greedy(20)));
    finish();
    const GenerationOutput output = handle.outputs_so_far().at(0);
    EXPECT_EQ(output.generated_ids.size(), 14u);
    EXPECT_EQ(output.generated_log_probs, std::vector<float>(14, 0.0f));
    EXPECT_EQ(handle.get_perf_metrics().get_num_generated_tokens(), 14u);
}

TEST_F(JumpForwardTokens, EndAtTheLengthAndAtStops) {
    for (size_t length = 1; length < 14; ++length) {
        make();
        const auto handle = submit({1}, with_grammar(greedy(length)));
        finish();
        EXPECT_EQ(generated(handle).size(), length);
        EXPECT_EQ(reason_of(handle), Reason::LENGTH);
        EXPECT_EQ(num_free(), num_blocks);
    }
    GenerationConfig config = with_grammar(greedy(20));
    config.stop_token_ids.insert(52);
    config.stop_strings = {"none of it"};
    make();
    const auto by_token = submit({1}, config);
    config.stop_token_ids = {};
    config.stop_strings = {letters({51, 52})};
    const auto by_text = submit({1}, config);
    finish();
    for (const auto& handle : {by_token, by_text}) {
        EXPECT_EQ(generated(handle), Tokens({70, 71, 72, 10, 50, 51, 52}));
        EXPECT_EQ(reason_of(handle), Reason::STOP);
    }
}

TEST_F(JumpForwardTokens, AreNotAppendedWhereOthersMayForbidThem) {
    GenerationConfig config = with_grammar(greedy(20));
    config.suppress_tokens = {51};
    const auto handle = submit({1}, config);
    finish();
    EXPECT_EQ(generated(handle), Tokens({70, 71, 72, 10, 50}));
    EXPECT_EQ(reason_of(handle), Reason::ERROR);
}

TEST_F(JumpForwardTokens, OfManySequencesInSmallStepsAndFewBlocksAreTheSame) {
    Tokens expected;
    steps_of(with_grammar(greedy(20)), expected);
    SchedulerConfig small = scheduler();
    small.num_kv_blocks = 9;
    small.max_num_batched_tokens = 4;
    make(small);
    std::vector<GenerationHandle> handles;
    for (int64_t i = 0; i < 5; ++i)
        handles.push_back(submit({1, 2, 3, 1}, with_grammar(greedy(20))));
    const auto many = submit({1, 2, 3, 1}, with_grammar(samples(20, 4)));
    finish();
    for (const GenerationHandle& handle : handles) EXPECT_EQ(generated(handle), expected);
    for (const GenerationOutput& output : many.outputs_so_far())
        EXPECT_TRUE(allows(output.generated_ids));
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
}

/// The grammar's first text, from wherever the sequence is.
class Reading final : public Drafter {
public:
    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        const Tokens& tokens = sequence.tokens;
        const Tokens text = texts_with_spans().front();
        for (size_t i = tokens.size() - 1; i < text.size() && drafts.size() < most; ++i)
            drafts.push_back({text[i]});
    }
};

TEST_F(JumpForwardTokens, GoTogetherWithDrafts) {
    for (const bool each : {false, true}) {
        drafter = std::make_unique<Reading>();
        make();
        const GenerationConfig config = with_grammar(greedy(20));
        const auto handle = submit({1}, each ? one_by_one(config) : config);
        finish();
        EXPECT_EQ(generated(handle),
                  Tokens({70, 71, 72, 10, 50, 51, 52, 53, 54, 40, 60, 61, 62, stop}));
        EXPECT_EQ(num_free(), num_blocks);
    }
}

TEST_F(JumpForwardTokens, SeveralStopTokensAreTheModelsChoice) {
    grammar.stops = {98, stop};
    make();
    model->next = [](int64_t) { return 98; };
    GenerationConfig config = with_grammar(greedy(20));
    config.stop_token_ids.insert(98);
    const auto handle = submit({1}, config);
    finish();
    EXPECT_EQ(generated(handle).back(), 98);
}

TEST_F(JumpForwardTokens, OfALongTextAreFoundOnce) {
    grammar.texts = {{}};
    for (int64_t i = 0; i < 900; ++i) grammar.texts.front().push_back(10 + i * i % 50);
    std::atomic<size_t> num_calls{0};
    grammar.before_jump_forward = [&](const Tokens&) { ++num_calls; };
    SchedulerConfig large = scheduler();
    large.num_kv_blocks = 250;
    large.max_num_batched_tokens = 300;
    make(large);
    const auto handle = submit({1}, with_grammar(greedy(950)));
    finish();
    EXPECT_TRUE(allows(generated(handle)));
    EXPECT_EQ(engine->statistics().num_steps, 52u);  // in spans of 16 tokens after the first step
    EXPECT_EQ(num_calls, 2u);                        // behind the first token, and at the end
}

TEST_F(JumpForwardTokens, ShareTheTimeOfTheirStep) {
    const auto handle = submit({1}, with_grammar(greedy(20)));
    finish();
    // The first step gives a span and a choice, the second the rest of its span...
    const std::vector<float> durations = handle.get_perf_metrics().raw_metrics.m_durations;
    std::map<float, size_t> counts;
    for (const float duration : durations) ++counts[duration];
    const size_t num_first = 3;
    EXPECT_EQ(durations.size(), 14 - num_first);
    EXPECT_EQ(counts.size(), 2u);  // of two steps
}

TEST_F(EngineGrammar, ARunThatFailsLeavesNoMaskBehind) {
    make();
    model->before_run = [](const Batch& batch) {
        if (batch.entries.front().sequence->tokens.size() > 1) throw std::runtime_error("no run");
    };
    const auto handle = submit({1}, with_grammar(greedy(10)));
    EXPECT_THROW(finish(), std::runtime_error);
    expect_told(handle, "no run");
    model->before_run = [](const Batch&) {};
    const auto next = submit({1}, with_grammar(greedy(10)));
    finish();
    EXPECT_TRUE(allows(generated(next)));
}

}  // namespace
}  // namespace pagewheel
