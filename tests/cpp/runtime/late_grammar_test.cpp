// Grammars that take long: their own requests wait for them, and no others.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "runtime/grammar_masks.hpp"
#include "support/engine_fixture.hpp"
#include "support/list_grammar.hpp"

namespace pagewheel {
namespace {

constexpr int64_t last = 99;

/// What waits there goes on when it is open, or fails when it is cancelled.
class Gate {
public:
    void pass() {
        std::unique_lock lock(m_mutex);
        ++m_num_arrived;
        m_changed.wait(lock, [&] { return m_is_open || m_num_cancelled > 0; });
        if (!m_is_open) throw GrammarFailure("cancelled");
    }
    void open() {
        const std::lock_guard lock(m_mutex);
        m_is_open = true;
        m_changed.notify_all();
    }
    void cancel() {
        const std::lock_guard lock(m_mutex);
        ++m_num_cancelled;
        m_changed.notify_all();
    }
    size_t num_arrived() {
        const std::lock_guard lock(m_mutex);
        return m_num_arrived;
    }

private:
    std::mutex m_mutex;
    std::condition_variable m_changed;
    bool m_is_open = false;
    size_t m_num_arrived = 0, m_num_cancelled = 0;
};

class LateGrammar : public EngineTest {
protected:
    void SetUp() override {
        compile_grammar = [this](const GenerationConfig& config) {
            const bool is_slow = config.structured_output_config->regex == "slow";
            return std::make_shared<SequenceGrammar>(
                std::make_unique<ListMatcher>(is_slow ? slow : quick));
        };
        grammar_limits.step_wait = std::chrono::milliseconds(2);
        for (int64_t a = 20; a < 24; ++a)
            for (int64_t b = 30; b < 34; ++b) slow.texts.push_back({10, a, b, 40, 41, 42});
        quick.texts = {{50, 60, 51, 61, 52}, {50, 62, 51, 63, 53}};
    }
    void TearDown() override {
        gate.open();
        engine.reset();
    }
    /// Masks behind the first token stop at the gate.
    void close_gate() {
        slow.before_mask = [this](const Tokens& tokens) {
            if (!tokens.empty()) gate.pass();
        };
        slow.when_cancelled = [this] { gate.cancel(); };
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

    Gate gate;
    ListMatcher::Grammar slow{{}, {last}}, quick{{}, {last}};
};

TEST_F(LateGrammar, HoldsItsOwnRequestAndNoStep) {
    close_gate();
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
    gate.open();
    finish(pending);
    EXPECT_EQ(generated(pending), Tokens({10, 20, 30, 40, 41, 42, last}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(LateGrammar, ManySamplesOfOneLeaveThreadsToOthers) {
    close_gate();
    const auto pending = submit({1}, with("slow", samples(30)));
    std::vector<GenerationHandle> bound;
    for (int64_t i = 0; i < 3; ++i) bound.push_back(submit({1 + i}, with("quick")));
    for (const GenerationHandle& handle : bound) {
        finish(handle);
        EXPECT_EQ(generated(handle).size(), 6u);
    }
    for (const GenerationOutput& output : pending.outputs_so_far())
        EXPECT_EQ(output.generated_ids, Tokens({10}));
    EXPECT_LT(gate.num_arrived(), 30u);  // one after the other
    gate.open();
    finish();
    for (const GenerationOutput& output : pending.outputs_so_far()) {
        EXPECT_EQ(output.finish_reason, Reason::STOP);
        EXPECT_EQ(output.generated_ids.size(), 7u);
    }
}

TEST_F(LateGrammar, AloneKeepsItsBlocksWhileStepsFindNothingToDo) {
    close_gate();
    const auto pending = submit({1}, with("slow"));
    for (int i = 0; i < 20; ++i) engine->step();
    EXPECT_EQ(generated(pending), Tokens({10}));
    EXPECT_EQ(engine->statistics().num_preemptions, 0u);
    EXPECT_LT(num_free(), num_blocks);
    gate.open();
    finish();
    EXPECT_EQ(generated(pending).size(), 7u);
}

TEST_F(LateGrammar, GoesOnAfterItsBlocksWereTaken) {
    slow.texts = {{}};
    for (int64_t i = 0; i < 12; ++i) slow.texts.front().push_back(10 + i);
    std::atomic<size_t> num_masks{0};
    slow.before_mask = [&](const Tokens& tokens) {
        if (tokens.size() == 4) gate.pass();
        ++num_masks;
    };
    SchedulerConfig small = scheduler();
    small.num_kv_blocks = 8;
    make(small);
    const auto first = submit({1}, greedy(28));
    const auto pending = submit({1}, with("slow", greedy(20)));
    finish(first);
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    EXPECT_EQ(generated(pending).size(), 4u);
    gate.open();
    finish();
    Tokens expected = slow.texts.front();
    expected.push_back(last);
    EXPECT_EQ(generated(pending), expected);
    EXPECT_EQ(num_masks, 13u);
}

TEST_F(LateGrammar, EndsWithItsRequest) {
    close_gate();
    auto pending = submit({1}, with("slow"));
    while (gate.num_arrived() == 0) engine->step();
    pending.cancel();
    finish();
    EXPECT_EQ(pending.get_status(), Status::CANCEL);
    EXPECT_EQ(generated(pending), Tokens({10}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(LateGrammar, EndsWithTheEngine) {
    close_gate();
    const auto pending = submit({1}, with("slow"));
    while (gate.num_arrived() == 0) engine->step();
    engine.reset();
    EXPECT_EQ(pending.get_status(), Status::CANCEL);
}

TEST_F(LateGrammar, ThatTakesTooMuchOfAProcessorEndsItsSequence) {
    std::atomic<bool> is_cancelled{false};
    slow.before_mask = [&](const Tokens& tokens) {
        if (tokens.size() != 2) return;
        while (!is_cancelled) {
        }
        throw GrammarFailure("cancelled");
    };
    slow.when_cancelled = [&] { is_cancelled = true; };
    grammar_limits.task_time = std::chrono::milliseconds(5);
    make();
    const auto endless = submit({1}, with("slow"));
    const auto other = submit({1}, with("quick"));
    finish();
    EXPECT_EQ(generated(endless), Tokens({10, 20}));
    EXPECT_EQ(endless.outputs_so_far().at(0).finish_reason, Reason::ERROR);
    EXPECT_EQ(generated(other).size(), 6u);
}

TEST_F(LateGrammar, ForcedTokensThatAreLateComeAsTheModelsChoice) {
    slow.before_jump_forward = [this](const Tokens& tokens) {
        if (tokens.size() == 3) gate.pass();
    };
    make();
    GenerationConfig config = with("slow");
    config.logprobs = 0;
    const auto pending = submit({1}, config);
    const auto other = submit({1}, greedy(20));
    finish(other);
    EXPECT_EQ(generated(pending).size(), 3u);
    gate.open();
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

/// No step waits, so whatever is found by threads is late.
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
            grammar_limits.step_wait = std::chrono::milliseconds(0);
            EXPECT_EQ(run(drafts, blocks), expected);
        }
}

}  // namespace
}  // namespace pagewheel
