// Grammars that take long: their own requests wait for them, and no others.
#include <atomic>

#include "runtime/grammar_masks.hpp"
#include "support/engine_fixture.hpp"
#include "support/list_grammar.hpp"

namespace pagewheel {
namespace {

constexpr int64_t last = 99;

class LateGrammar : public EngineTest {
protected:
    void SetUp() override {
        compile_grammar = [this](const GenerationConfig& config) {
            const bool is_slow = config.structured_output_config->regex == "slow";
            const ListMatcher::Grammar& grammar = is_slow ? slow : quick;
            return std::make_shared<SequenceGrammar>(std::make_unique<ListMatcher>(grammar),
                                                     &grammar);
        };
        grammar_limits.hold_time = std::chrono::milliseconds(2);
        for (int64_t a = 20; a < 24; ++a)
            for (int64_t b = 30; b < 34; ++b) slow.texts.push_back({10, a, b, 40, 41, 42});
        quick.texts = {{50, 60, 51, 61, 52}, {50, 62, 51, 63, 53}};
    }
    void TearDown() override {
        is_open = true;
        engine.reset();
    }
    /// Masks behind so many tokens take a processor until `is_open`.
    void close_behind(size_t count) {
        slow.before_mask = [this, count](const Tokens& tokens) {
            num_slow_masks += tokens.size() >= count;
        };
        slow.takes_long = [this, count](const Tokens& tokens) {
            return tokens.size() >= count && !is_open;
        };
        make();
    }

    static GenerationConfig with(const std::string& name, GenerationConfig config = greedy(10)) {
        config.set_eos_token_id(last);
        config.logprobs = 1;  // nothing is appended ahead
        config.structured_output_config.emplace().regex = name;
        return config;
    }
    static GenerationConfig samples(size_t num_sequences) {
        GenerationConfig config = greedy(10);
        config.do_sample = true;
        config.temperature = 3.0f;
        config.num_return_sequences = num_sequences;
        config.rng_seed = 7;
        return config;
    }
    static bool is_over(const GenerationHandle& handle) {
        return handle.get_status() != Status::RUNNING;
    }
    void finish(const GenerationHandle& handle) {
        while (!is_over(handle)) engine->step();
    }
    using EngineTest::finish;

    std::atomic<bool> is_open{false};
    std::atomic<size_t> num_slow_masks{0};
    ListMatcher::Grammar slow{{}, {last}}, quick{{}, {last}};
};

TEST_F(LateGrammar, HoldsItsOwnRequestAndNoStep) {
    close_behind(1);
    const auto pending = submit({1}, with("slow"));
    const auto free = submit({1}, greedy(30));
    const auto bound = submit({1}, with("quick"));
    size_t num_steps = 0;
    for (; !is_over(free); ++num_steps) engine->step();
    EXPECT_EQ(num_steps, 30u);  // one for each token
    EXPECT_EQ(generated(pending), Tokens({10}));
    finish(bound);
    EXPECT_EQ(generated(bound).size(), 6u);
    const auto late = submit({1, 2}, greedy(5));  // one that comes meanwhile
    finish(late);
    EXPECT_EQ(generated(pending), Tokens({10}));
    is_open = true;
    finish(pending);
    EXPECT_EQ(generated(pending), Tokens({10, 20, 30, 40, 41, 42, last}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(LateGrammar, ManySamplesOfOneLeaveThreadsToOthers) {
    close_behind(1);
    const auto pending = submit({1}, with("slow", samples(30)));
    std::vector<GenerationHandle> bound;
    for (int64_t i = 0; i < 3; ++i) bound.push_back(submit({1 + i}, with("quick")));
    for (const GenerationHandle& handle : bound) {
        finish(handle);
        EXPECT_EQ(generated(handle).size(), 6u);
    }
    for (const GenerationOutput& output : pending.outputs_so_far())
        EXPECT_EQ(output.generated_ids, Tokens({10}));
    EXPECT_LT(num_slow_masks, 30u);  // one after the other
    is_open = true;
    finish();
    for (const GenerationOutput& output : pending.outputs_so_far()) {
        EXPECT_EQ(output.finish_reason, Reason::STOP);
        EXPECT_EQ(output.generated_ids.size(), 7u);
    }
}

TEST_F(LateGrammar, AloneKeepsItsBlocksWhileStepsFindNothingToDo) {
    close_behind(1);
    const auto pending = submit({1}, with("slow"));
    for (int i = 0; i < 20; ++i) engine->step();
    EXPECT_EQ(generated(pending), Tokens({10}));
    EXPECT_EQ(engine->statistics().num_preemptions, 0u);
    EXPECT_LT(num_free(), num_blocks);
    is_open = true;
    finish();
    EXPECT_EQ(generated(pending).size(), 7u);
}

TEST_F(LateGrammar, GoesOnAfterItsBlocksWereTaken) {
    slow.texts = {{}};
    for (int64_t i = 0; i < 12; ++i) slow.texts.front().push_back(10 + i);
    close_behind(4);
    SchedulerConfig small = scheduler();
    small.num_kv_blocks = 8;
    make(small);
    const auto first = submit({1}, greedy(28));
    const auto pending = submit({1}, with("slow", greedy(20)));
    finish(first);
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    EXPECT_EQ(generated(pending).size(), 4u);
    is_open = true;
    finish();
    Tokens expected = slow.texts.front();
    expected.push_back(last);
    EXPECT_EQ(generated(pending), expected);
    EXPECT_EQ(num_slow_masks, 10u);  // nine, and the first again where it had begun
}

TEST_F(LateGrammar, EndsWithItsRequest) {
    close_behind(1);
    auto pending = submit({1}, with("slow"));
    while (num_slow_masks == 0) engine->step();
    pending.cancel();
    finish();
    EXPECT_EQ(pending.get_status(), Status::CANCEL);
    EXPECT_EQ(generated(pending), Tokens({10}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(LateGrammar, EndsWithTheEngine) {
    close_behind(1);
    const auto pending = submit({1}, with("slow"));
    while (num_slow_masks == 0) engine->step();
    engine.reset();
    EXPECT_EQ(pending.get_status(), Status::CANCEL);
}

TEST_F(LateGrammar, ThatTakesTooMuchOfAProcessorEndsItsSequence) {
    grammar_limits.late_time = std::chrono::milliseconds(5);
    grammar_limits.late_time_per_work = {};
    close_behind(2);
    const auto endless = submit({1}, with("slow"));
    const auto other = submit({1}, with("quick"));
    finish();
    EXPECT_EQ(generated(endless), Tokens({10, 20}));
    const GenerationOutput output = endless.outputs_so_far().at(0);
    EXPECT_EQ(output.finish_reason, Reason::ERROR);
    EXPECT_EQ(std::get<std::string>(output.stop_reason),
              "the grammar cannot go on: its masks took more than 5 ms of a processor");
    EXPECT_EQ(generated(other).size(), 6u);
}

TEST_F(LateGrammar, ForcedTokensThatAreLateComeAsTheModelsChoice) {
    close_behind(3);
    GenerationConfig config = with("slow");
    config.logprobs = 0;
    const auto pending = submit({1}, config);
    const auto other = submit({1}, greedy(20));
    finish(other);
    EXPECT_EQ(generated(pending).size(), 3u);
    is_open = true;
    finish();
    EXPECT_EQ(generated(pending), Tokens({10, 20, 30, 40, 41, 42, last}));
    EXPECT_EQ(pending.get_perf_metrics().get_num_generated_tokens(), 7u);
}

/// Proposes what the slow grammar's first text goes on with.
class ReadingSlowly final : public Drafter {
public:
    void propose(SequenceState& sequence, size_t most, std::vector<Draft>& drafts) override {
        const Tokens& tokens = sequence.tokens;
        const Tokens text{10, 20, 30, 40, 41, 42};
        for (size_t i = tokens.size() - 1; i < text.size() && drafts.size() < most; ++i)
            drafts.push_back({text[i]});
    }
};

/// No step waits, so whatever was not found when the request came is late.
TEST_F(LateGrammar, ChangesNoToken) {
    GenerationConfig forced = with("slow");
    forced.logprobs = 0;
    GenerationConfig beams = greedy(10);
    beams.num_beams = beams.num_return_sequences = 4;
    const std::vector<GenerationConfig> configs{with("slow"), with("slow", samples(5)), forced,
                                                with("slow", beams), with("quick", samples(3))};
    const auto run = [&](bool drafts, size_t blocks) {
        if (drafts) drafter = std::make_unique<ReadingSlowly>();
        SchedulerConfig config = scheduler();
        config.num_kv_blocks = blocks;
        make(config);
        std::vector<GenerationHandle> handles;
        for (const GenerationConfig& each : configs) handles.push_back(submit({1}, each));
        finish();
        std::vector<Tokens> found;
        for (const GenerationHandle& handle : handles)
            for (const GenerationOutput& output : handle.outputs_so_far())
                found.push_back(output.generated_ids);
        return found;
    };
    for (const bool drafts : {false, true})
        for (const size_t blocks : {num_blocks, size_t(12)}) {
            grammar_limits = patient();
            const std::vector<Tokens> expected = run(drafts, blocks);
            EXPECT_EQ(expected.size(), 14u);
            grammar_limits.hold_time = {};
            EXPECT_EQ(run(drafts, blocks), expected);
        }
}

}  // namespace
}  // namespace pagewheel
