// The engine on a model that is a script: a request's life, and what failures leave of it.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "pagewheel/log.hpp"
#include "scripted_model.hpp"

namespace pagewheel {
namespace {

using Tokens = std::vector<int64_t>;
using Status = GenerationStatus;
using Reason = GenerationFinishReason;
using Stage = Sequence::Stage;

constexpr size_t num_blocks = 64;

/// Token t is the letter 'a' + t % 26.
std::string letters(const Tokens& tokens) {
    std::string text;
    for (const int64_t token : tokens) text += char('a' + token % 26);
    return text;
}

class EngineTest : public testing::Test {
protected:
    static SchedulerConfig scheduler() {
        SchedulerConfig config;
        config.num_kv_blocks = num_blocks;
        config.max_num_batched_tokens = 8;
        return config;
    }
    void make(const SchedulerConfig& config = scheduler()) {
        auto scripted = std::make_unique<ScriptedModel>();
        model = scripted.get();
        EngineParts parts;
        parts.model = std::move(scripted);
        parts.drafter = std::move(drafter);
        parts.context_length = 1000;
        parts.decoders = {letters, letters};
        engine = std::make_shared<Engine>(std::move(parts), config);
    }
    void SetUp() override { make(); }

    static GenerationConfig greedy(size_t count) {
        GenerationConfig config;
        config.max_new_tokens = count;
        return config;
    }
    GenerationHandle submit(const Tokens& prompt, const GenerationConfig& config) {
        return GenerationHandle(engine->submit(std::nullopt, prompt, config));
    }
    void finish() {
        while (engine->has_work()) engine->step();
    }
    size_t num_free() const { return engine->statistics().num_free_blocks; }
    static Tokens generated(const GenerationHandle& handle) {
        return handle.read_all().at(0).generated_ids;
    }

    using Handle = std::shared_ptr<GenerationHandle::State>;

    /// Where a request's first sequence is; OUTSIDE once the request is over.
    static Stage stage_of(const Handle& state) {
        return state->request ? state->request->generations.front()->sequence.stage
                              : Stage::OUTSIDE;
    }
    Handle submit_state(const Tokens& prompt, const GenerationConfig& config) {
        return engine->submit(std::nullopt, prompt, config);
    }

    std::unique_ptr<Drafter> drafter;  // of the next make()
    ScriptedModel* model = nullptr;
    std::shared_ptr<Engine> engine;
};

TEST_F(EngineTest, ARequestGetsWhatTheModelSaysAndEndsByLength) {
    const GenerationHandle handle = submit({1, 2, 3}, greedy(4));
    EXPECT_EQ(handle.get_status(), Status::RUNNING);
    finish();
    EXPECT_EQ(handle.get_status(), Status::FINISHED);
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6, 7}));
    EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::LENGTH);
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, AStopTokenEndsIt) {
    GenerationConfig config = greedy(20);
    config.stop_token_ids = {6};
    const GenerationHandle handle = submit({3}, config);
    finish();
    EXPECT_EQ(generated(handle), (Tokens{4, 5, 6}));
    EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::STOP);
}

TEST_F(EngineTest, AHundredRequestsWithStopStringsEndWhereTheirTextDoes) {
    std::mt19937 random(1);
    std::vector<std::pair<GenerationHandle, std::string>> requests;
    std::vector<int64_t> firsts;
    for (size_t i = 0; i < 100; ++i) {
        const int64_t first = int64_t(random() % 50);
        const size_t begin = size_t(random() % 20), length = 1 + random() % 4;
        Tokens following;
        for (size_t k = 0; k < 30; ++k) following.push_back((first + 1 + int64_t(k)) % 100);
        GenerationConfig config = greedy(30);
        config.stop_strings = {letters(following).substr(begin, length)};
        requests.emplace_back(submit({first}, config), *config.stop_strings.begin());
        firsts.push_back(first);
    }
    finish();
    for (size_t i = 0; i < requests.size(); ++i) {
        const auto& [handle, stop] = requests[i];
        const std::string text = letters(generated(handle));
        ASSERT_GE(text.size(), stop.size()) << i;
        EXPECT_EQ(text.find(stop), text.size() - stop.size()) << i << " from " << firsts[i];
        EXPECT_EQ(handle.read_all().at(0).finish_reason, Reason::STOP);
    }
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, CancelAndStopEndARequestAtTheNextStepInEveryStage) {
    const Tokens prompt(20, 5);  // three steps of 8 tokens
    for (const Status wanted : {Status::CANCEL, Status::STOP})
        for (size_t steps = 0; steps < 6; ++steps) {
            GenerationHandle handle = submit(prompt, greedy(10));
            for (size_t i = 0; i < steps; ++i) engine->step();
            if (wanted == Status::CANCEL)
                handle.cancel();
            else
                handle.stop(Reason::STOP);
            engine->step();
            EXPECT_EQ(handle.get_status(), wanted) << steps;
            EXPECT_EQ(generated(handle).size(), steps < 3 ? 0 : steps - 2) << steps;
            EXPECT_EQ(num_free(), num_blocks);
            EXPECT_FALSE(engine->has_work());
        }
}

TEST_F(EngineTest, ADeadlineEndsAWaitingAndARunningRequest) {
    SchedulerConfig config = scheduler();
    config.max_num_seqs = 1;
    make(config);
    GenerationConfig soon = greedy(200);
    soon.timeout = 0.3f;
    const GenerationHandle running = submit({1}, soon), waiting = submit({2}, soon);
    engine->step();
    std::this_thread::sleep_for(std::chrono::milliseconds(350));
    engine->step();
    EXPECT_EQ(running.get_status(), Status::TIMEOUT);
    EXPECT_EQ(generated(running).size(), 1u);
    EXPECT_EQ(waiting.get_status(), Status::TIMEOUT);
    EXPECT_TRUE(generated(waiting).empty());
}

TEST_F(EngineTest, PreemptedRequestsGetTheSameTokens) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 8;
    make(config);
    std::vector<GenerationHandle> handles;
    for (int64_t i = 0; i < 4; ++i) handles.push_back(submit({i}, greedy(25)));
    finish();
    EXPECT_GT(engine->statistics().num_preemptions, 0u);
    for (int64_t i = 0; i < 4; ++i) {
        const Tokens tokens = generated(handles[size_t(i)]);
        ASSERT_EQ(tokens.size(), 25u);
        for (int64_t k = 0; k < 25; ++k) EXPECT_EQ(tokens[size_t(k)], i + 1 + k);
    }
}

TEST_F(EngineTest, AFailedRunEndsItsBatchWithTheReasonAndNoOther) {
    SchedulerConfig config = scheduler();
    config.max_num_seqs = 1;
    make(config);
    const GenerationHandle first = submit({1}, greedy(3)), second = submit({2}, greedy(3));
    model->before_run = [](const Batch&) { throw std::runtime_error("out of luck"); };
    EXPECT_THROW(engine->step(), std::runtime_error);
    model->before_run = [](const Batch&) {};
    finish();
    EXPECT_EQ(first.get_status(), Status::CANCEL);
    try {
        first.read_all();
        FAIL() << "the failure is not told";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("out of luck"), std::string::npos);
    }
    EXPECT_EQ(generated(second), (Tokens{3, 4, 5}));
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, AFailureOutsideTheModelsRunEndsEveryRequestWithTheCauseAndThePipeline) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 200;
    config.max_num_batched_tokens = 256;
    make(config);
    // Memory is given back where most of what was used is free again: looked at now and then.
    const GenerationHandle running = submit({1}, greedy(150));
    for (int64_t i = 0; i < 40; ++i) submit(Tokens(16, i), greedy(1));
    std::optional<GenerationHandle> submitted;
    model->when_memory_is_unused = [&] {
        submitted = submit({2}, greedy(9));  // and nobody has looked at it yet
        throw std::runtime_error("the floor gave way");
    };
    const auto fails = [](const std::function<void()>& call) {
        try {
            call();
        } catch (const std::runtime_error& error) {
            return std::string(error.what()).find("the floor gave way") != std::string::npos;
        }
        return false;
    };
    EXPECT_TRUE(fails([&] { finish(); }));
    ASSERT_TRUE(submitted.has_value());
    for (const GenerationHandle& handle : {running, *submitted}) {
        EXPECT_EQ(handle.get_status(), Status::CANCEL);
        EXPECT_TRUE(fails([&] { handle.read_all(); }));
        EXPECT_TRUE(handle.wait(std::chrono::hours(1)));
    }
    EXPECT_FALSE(engine->has_work());
    EXPECT_TRUE(fails([&] { engine->step(); }));
    EXPECT_TRUE(fails([&] { submit({1}, greedy(1)); }));
}

TEST_F(EngineTest, CallbacksRunAfterTheStepAndMayStep) {
    GenerationHandle first = submit({1}, greedy(5)), second = submit({2}, greedy(5));
    std::vector<Tokens> seen;
    first.notify_once([&] {
        seen.push_back(generated(second));
        engine->step();
        seen.push_back(generated(second));
    });
    engine->step();
    EXPECT_EQ(seen, (std::vector<Tokens>{{3}, {3, 4}}));
    finish();
}

TEST_F(EngineTest, StatisticsGoToTheLogAfterTheStepAndItsCallbackMayAskTheEngine) {
    SchedulerConfig config = scheduler();
    config.statistics_interval = 2;
    make(config);
    std::vector<std::string> lines;
    set_log_callback([&](LogLevel level, const std::string& line) {
        EXPECT_EQ(level, LogLevel::INFO);
        EXPECT_GT(engine->statistics().num_steps, 0u);
        if (lines.empty()) engine->step();  // the third
        lines.push_back(line);
    });
    submit({1}, greedy(5));
    finish();
    set_log_callback({});
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE(lines[0].find("step 2: 1 running"), std::string::npos) << lines[0];
    EXPECT_NE(lines[1].find("step 4: 1 running"), std::string::npos) << lines[1];
}

TEST_F(EngineTest, MetricsAreTheStatisticsUnderOtherNames) {
    submit({1, 2, 3, 4, 5}, greedy(4));
    engine->step();
    const PipelineStatistics statistics = engine->statistics();
    EXPECT_EQ(statistics.num_requests, 1u);
    EXPECT_EQ(statistics.num_used_blocks, 2u);
    EXPECT_EQ(statistics.max_used_blocks, 2u);
    EXPECT_EQ(statistics.mean_used_blocks, 2.0);
    EXPECT_EQ(statistics.block_bytes, ScriptedModel::bytes_per_block);
    const PipelineMetrics metrics = metrics_of(statistics);
    EXPECT_EQ(metrics.requests, 1u);
    EXPECT_FLOAT_EQ(metrics.cache_usage, 100.0f * 2 / num_blocks);
    finish();
    EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
    EXPECT_EQ(engine->statistics().max_used_blocks, 2u);
    EXPECT_LT(engine->statistics().mean_used_blocks, 2.0);
}

TEST_F(EngineTest, ACallbacksExceptionDoesNotHideTheStepsFailure) {
    GenerationHandle handle = submit({1}, greedy(3));
    model->before_run = [](const Batch&) { throw std::runtime_error("the model"); };
    handle.notify_once([] { throw std::logic_error("the callback"); });
    EXPECT_THROW(engine->step(), std::runtime_error);
}

TEST_F(EngineTest, ReadTellsTheReasonOfAStopOnce) {
    for (const bool with_text : {false, true}) {
        GenerationHandle handle = submit({1}, greedy(9));
        engine->step();
        handle.read(with_text);
        handle.stop(Reason::STOP);
        engine->step();
        EXPECT_TRUE(handle.can_read());
        EXPECT_EQ(handle.read(with_text).at(0).finish_reason, Reason::STOP);
        EXPECT_FALSE(handle.can_read());
        EXPECT_TRUE(handle.read(with_text).empty());
    }
}

TEST_F(EngineTest, ThePromptsLogProbabilitiesAreAskedOnce) {
    GenerationConfig config = greedy(6);
    config.echo = true;
    config.logprobs = 1;
    std::vector<size_t> rows;
    model->before_run = [&](const Batch& batch) { rows.push_back(batch.entries[0].num_logits); };
    const Handle state = submit_state(Tokens(12, 1), config);
    for (int i = 0; i < 2; ++i) engine->step();
    EXPECT_FALSE(state->request->generations[0]->sequence.wants_prompt_logits);
    finish();
    EXPECT_EQ(rows, (std::vector<size_t>{8, 4, 1, 1, 1, 1, 1}));
    EXPECT_EQ(state->outputs[0].all.prompt_log_probs.size(), 11u);
}

TEST_F(EngineTest, AnEngineThatGoesEndsItsRequests) {
    GenerationHandle handle = submit({1}, greedy(5));
    bool called = false;
    handle.notify_once([&] { called = true; });
    engine.reset();
    EXPECT_TRUE(called);
    EXPECT_EQ(handle.get_status(), Status::CANCEL);
    handle.cancel();
}

// ---- Stages

TEST_F(EngineTest, ASequenceGoesThroughItsStages) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 10;
    make(config);
    const Tokens prompt(20, 5);
    const Handle first = submit_state(prompt, greedy(12));
    const Handle second = submit_state(prompt, greedy(4));  // begins with the same
    EXPECT_EQ(stage_of(first), Stage::OUTSIDE);
    EXPECT_EQ(first->request->phase, Request::Phase::QUEUED);
    engine->step();
    EXPECT_EQ(first->request->phase, Request::Phase::BEGUN);
    EXPECT_EQ(stage_of(first), Stage::PREFILLING);
    EXPECT_EQ(stage_of(second), Stage::FOLLOWING);
    EXPECT_EQ(second->request->phase, Request::Phase::QUEUED);
    engine->step();
    engine->step();
    EXPECT_EQ(stage_of(first), Stage::DECODING);
    EXPECT_EQ(stage_of(second), Stage::WAITING);  // its leader has computed what it begins with
    engine->step();
    EXPECT_EQ(stage_of(second), Stage::DECODING);
    // Another prompt has the ten blocks run out: who ranks last waits again.
    const Handle third = submit_state(Tokens(12, 7), greedy(4));
    bool was_preempted = false;
    while (engine->has_work()) {
        engine->step();
        for (const Handle& state : {first, second, third})
            was_preempted =
                was_preempted || (stage_of(state) == Stage::WAITING &&
                                  state->request->generations.front()->sequence.is_preempted());
    }
    EXPECT_TRUE(was_preempted);
    for (const Handle& state : {first, second, third}) {
        EXPECT_EQ(state->status, Status::FINISHED);
        EXPECT_EQ(state->request, nullptr);
    }
    EXPECT_EQ(first->outputs[0].all.generated_ids,
              (Tokens{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
    EXPECT_EQ(second->outputs[0].all.generated_ids, (Tokens{6, 7, 8, 9}));
}

TEST_F(EngineTest, BeamsThatArePreemptedWhileTheOthersAreScoredAreSuspended) {
    SchedulerConfig config = scheduler();
    config.num_kv_blocks = 12;
    make(config);
    model->score = [](const Tokens& tokens, size_t count, float* logits) {
        for (size_t i = 0; i < 4; ++i)
            logits[(size_t(tokens[count - 1]) + 1 + i) % 100] = 9.0f - float(i);
    };
    GenerationConfig beams = greedy(16);
    beams.num_beams = beams.num_return_sequences = 4;
    const Handle searching = submit_state(Tokens(8, 3), beams);
    const Handle other = submit_state({1}, greedy(20));
    bool suspended = false;
    while (engine->has_work()) {
        engine->step();
        if (searching->request)
            for (const auto& beam : searching->request->generations)
                suspended = suspended || beam->sequence.stage == Stage::SUSPENDED;
    }
    EXPECT_TRUE(suspended);
    EXPECT_EQ(searching->status, Status::FINISHED);
    EXPECT_EQ(searching->outputs.size(), 4u);
    EXPECT_EQ(other->outputs[0].all.generated_ids.size(), 20u);
    EXPECT_EQ(num_free(), 12u);
}

TEST_F(EngineTest, ACancelAtAnyStepFreesItsOwnBlocksAloneWhateverTheStage) {
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 12;
    for (size_t steps = 0; steps < 25; ++steps)
        for (size_t victim = 0; victim < 4; ++victim) {
            make(config);
            std::vector<Handle> states;
            for (size_t i = 0; i < 4; ++i)
                states.push_back(submit_state(Tokens(12, int64_t(i / 2)), greedy(10)));
            for (size_t i = 0; i < steps && engine->has_work(); ++i) engine->step();
            GenerationHandle(states[victim]).cancel();
            finish();
            for (size_t i = 0; i < 4; ++i) {
                if (i == victim && states[i]->status == Status::CANCEL) continue;
                ASSERT_EQ(states[i]->status, Status::FINISHED) << steps;
                for (size_t k = 0; k < 10; ++k)
                    ASSERT_EQ(states[i]->outputs[0].all.generated_ids.at(k),
                              int64_t(i / 2 + 1 + k));
            }
            const PipelineStatistics statistics = engine->statistics();
            ASSERT_EQ(statistics.num_used_blocks, 0u);
            ASSERT_EQ(statistics.num_running + statistics.num_queued + statistics.num_preempted,
                      0u);
        }
}

// ---- Text

TEST_F(EngineTest, TextIsReadOnceInPiecesThatJoinToTheWhole) {
    GenerationHandle handle = submit({1}, greedy(6));
    std::string text;
    while (engine->has_work()) {
        engine->step();
        for (const auto& [index, output] : handle.read(true)) {
            EXPECT_EQ(output.text, letters(output.generated_ids));
            text += output.text;
        }
    }
    EXPECT_EQ(text, "cdefgh");
    EXPECT_TRUE(handle.read(true).empty());
    EXPECT_FALSE(handle.can_read());
    EXPECT_EQ(handle.read_all(true).at(0).text, text);
    EXPECT_EQ(handle.read_all().at(0).text, "");
}

TEST_F(EngineTest, HeldBackTextComesWithTheEndAlsoWithoutTokens) {
    GenerationConfig config = greedy(50);
    config.stop_strings = {"ghx"};  // "gh" is held back: it may be the beginning
    GenerationHandle handle = submit({4}, config);
    std::string text;
    for (size_t i = 0; i < 3; ++i) {  // f, g, h
        engine->step();
        for (const auto& [index, output] : handle.read(true)) text += output.text;
    }
    EXPECT_EQ(text, "f");
    handle.stop();
    EXPECT_FALSE(handle.can_read());
    engine->step();
    EXPECT_TRUE(handle.can_read());
    const GenerationOutputs rest = handle.read(true);
    EXPECT_EQ(rest.at(0).text, "gh");
    EXPECT_TRUE(rest.at(0).generated_ids.empty());
    EXPECT_FALSE(handle.can_read());
}

TEST_F(EngineTest, TextThatIsHeldBackIsNotLostWhereTokensAreReadWithoutIt) {
    GenerationConfig config = greedy(50);
    config.stop_strings = {"ghx"};
    GenerationHandle handle = submit({4}, config);
    std::string text;
    for (size_t i = 0; i < 3; ++i) {  // f, g, h
        engine->step();
        for (const auto& [index, output] : handle.read(true)) text += output.text;
    }
    handle.read();
    handle.stop();
    engine->step();
    handle.read();
    for (const auto& [index, output] : handle.read(true)) text += output.text;
    EXPECT_EQ(text, "fgh");
    EXPECT_TRUE(handle.read(true).empty());
    EXPECT_FALSE(handle.can_read());
}

TEST_F(EngineTest, TextThatWasDroppedDoesNotComeWithTheTokenOfAStepUnderWay) {
    GenerationHandle handle = submit({1}, greedy(9));
    for (size_t i = 0; i < 4; ++i) engine->step();
    model->before_run = [&](const Batch&) { handle.drop(); };
    engine->step();
    const GenerationOutputs late = handle.read(true);
    ASSERT_EQ(late.count(0), 1u);
    EXPECT_EQ(late.at(0).text, letters(late.at(0).generated_ids));
    finish();
}

TEST_F(EngineTest, ADecoderThatFailsOnceNeitherLosesNorDoublesWhatIsRead) {
    bool fails = false;
    const auto decoder = [&](const Tokens& tokens) {
        if (tokens.back() == 6 && std::exchange(fails, false)) throw std::runtime_error("no text");
        return letters(tokens);
    };
    EngineParts parts;
    parts.model = std::make_unique<ScriptedModel>();
    parts.decoders = {decoder, letters};
    engine = std::make_shared<Engine>(std::move(parts), scheduler());
    GenerationHandle handle = submit({1}, greedy(9));
    Tokens tokens;
    std::string text;
    const auto read = [&] {
        for (const auto& [index, output] : handle.read(true)) {
            tokens.insert(tokens.end(), output.generated_ids.begin(), output.generated_ids.end());
            text += output.text;
        }
    };
    engine->step();
    read();
    for (size_t i = 0; i < 6; ++i) engine->step();
    fails = true;
    EXPECT_THROW(read(), std::runtime_error);
    finish();
    read();
    EXPECT_EQ(tokens, generated(handle));
    EXPECT_EQ(text, letters(generated(handle)));
}

/// Cannot be copied while `is_stuck`, as where memory is out.
struct StickyDecoder {
    const bool* is_stuck;

    explicit StickyDecoder(const bool* stuck) : is_stuck(stuck) {}
    StickyDecoder(const StickyDecoder& other) : is_stuck(other.is_stuck) {
        if (*is_stuck) throw std::bad_alloc();
    }
    std::string operator()(const Tokens& tokens) const { return letters(tokens); }
};

TEST_F(EngineTest, ARequestThatCannotBeEndedProperlyIsToldAllTheSame) {
    for (const bool is_cancelled : {false, true}) {
        bool is_stuck = false;
        EngineParts parts;
        parts.model = std::make_unique<ScriptedModel>();
        parts.decoders = {StickyDecoder(&is_stuck), letters};
        engine = std::make_shared<Engine>(std::move(parts), scheduler());
        GenerationConfig beams = greedy(4);
        beams.num_beams = beams.num_return_sequences = 2;
        GenerationHandle handle = submit({1}, beams), other = submit({2}, greedy(9));
        for (size_t i = 0; i < 3; ++i) engine->step();
        if (is_cancelled) handle.cancel();  // else they end by their length
        is_stuck = true;                    // the texts of its beams cannot be made
        EXPECT_ANY_THROW(engine->step());
        for (const GenerationHandle& one : {handle, other}) {
            EXPECT_EQ(one.get_status(), Status::CANCEL) << is_cancelled;
            EXPECT_THROW(one.read_all(), std::runtime_error) << is_cancelled;
            EXPECT_TRUE(one.wait(std::chrono::seconds(0)));
        }
        EXPECT_FALSE(engine->has_work());
        is_stuck = false;
    }
}

TEST_F(EngineTest, EachTokenIsDecodedOnceWhoeverWantsItsText) {
    std::vector<size_t> lengths;
    const auto counted = [&](const Tokens& tokens) {
        lengths.push_back(tokens.size());
        return letters(tokens);
    };
    EngineParts parts;
    parts.model = std::make_unique<ScriptedModel>();
    parts.decoders = {counted, letters};
    engine = std::make_shared<Engine>(std::move(parts), scheduler());
    GenerationConfig config = greedy(8);
    GenerationHandle unread = submit({1}, config);
    finish();
    EXPECT_TRUE(lengths.empty());  // nobody asked
    EXPECT_EQ(unread.read_all(true).at(0).text, "cdefghij");
    EXPECT_EQ(unread.read(true).at(0).text, "cdefghij");
    EXPECT_EQ(lengths, (std::vector<size_t>{8}));  // at once
    lengths.clear();
    config.stop_strings = {"zz"};
    GenerationHandle matched = submit({1}, config);
    while (engine->has_work()) {
        engine->step();
        matched.read(true);
    }
    EXPECT_EQ(matched.read_all(true).at(0).text, "cdefghij");
    EXPECT_EQ(lengths.size(), 8u);
}

// ---- Drafts

/// Says what comes as the script does, but is wrong now and then.
class ScriptedDrafter final : public Drafter {
public:
    using Next = std::function<int64_t(const Tokens&)>;

    ScriptedDrafter(Next next, size_t count, size_t percent_wrong)
        : m_next(std::move(next)), m_count(count), m_percent_wrong(percent_wrong) {}

    void propose(const Tokens& tokens, size_t most, Tokens& drafts) override {
        Tokens all = tokens;
        for (size_t i = 0; i < std::min(m_count, most); ++i) {
            const bool is_wrong = m_random() % 100 < m_percent_wrong;
            all.push_back(is_wrong ? int64_t(m_random() % ScriptedModel::words) : m_next(all));
            drafts.push_back(all.back());
        }
    }

private:
    Next m_next;
    size_t m_count, m_percent_wrong;
    std::mt19937 m_random{7};
};

int64_t successor(const Tokens& tokens) {
    return (tokens.back() + 1) % int64_t(ScriptedModel::words);
}

TEST_F(EngineTest, DraftsThatAreRightGiveSeveralTokensPerStep) {
    drafter = std::make_unique<ScriptedDrafter>(successor, 3, 0);
    make();
    size_t num_runs = 0, most_rows = 0;
    model->before_run = [&](const Batch& batch) {
        ++num_runs;
        most_rows = std::max(most_rows, batch.entries.at(0).num_sampled);
    };
    const GenerationHandle handle = submit({1}, greedy(13));
    finish();
    EXPECT_EQ(generated(handle), (Tokens{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
    EXPECT_EQ(most_rows, 4u);
    EXPECT_EQ(num_runs, 1u + 3u);  // the prompt's token, then four in each
    EXPECT_EQ(num_free(), num_blocks);
}

TEST_F(EngineTest, DraftsTakeNoTurnFromOtherSequences) {
    for (const bool has_drafts : {false, true}) {
        // All are wrong, and as many as a step has tokens.
        if (has_drafts)
            drafter = std::make_unique<ScriptedDrafter>(
                [](const Tokens& tokens) { return (tokens.back() + 50) % 100; }, 7, 0);
        make();
        const GenerationHandle first = submit({1}, greedy(40)), second = submit({2}, greedy(40));
        const GenerationHandle prompt = submit(Tokens(12, 3), greedy(1));
        for (size_t i = 0; i < 10; ++i) engine->step();
        EXPECT_EQ(generated(first).size(), 10u) << has_drafts;
        EXPECT_EQ(generated(second).size(), 10u) << has_drafts;
        EXPECT_EQ(prompt.get_status(), Status::FINISHED) << has_drafts;
    }
}

/// Seeded samples, greedy answers and stop strings of requests that share prefixes in a cache that
/// is too small for all of them.
std::vector<GenerationOutput> answers(Engine& engine) {
    std::mt19937 random(3);
    std::vector<GenerationHandle> handles;
    for (size_t i = 0; i < 40; ++i) {
        GenerationConfig config;
        config.max_new_tokens = 1 + random() % 30;
        config.do_sample = i % 3 == 0;
        config.rng_seed = i;
        config.repetition_penalty = i % 4 == 0 ? 1.3f : 1.0f;
        config.no_repeat_ngram_size = i % 5 == 0 ? 2 : GenerationConfig::unlimited;
        config.logprobs = i % 2;
        config.num_return_sequences = config.do_sample ? 1 + i % 3 : 1;
        if (i % 7 == 0) config.stop_strings = {"ab", "jj"};
        if (i % 11 == 0) config.stop_token_ids = {17, 40};
        Tokens prompt(1 + random() % 20, int64_t(i % 4));
        handles.emplace_back(engine.submit(std::nullopt, prompt, config));
        for (size_t k = random() % 3; k > 0; --k) engine.step();
    }
    while (engine.has_work()) engine.step();
    std::vector<GenerationOutput> all;
    for (const GenerationHandle& handle : handles)
        for (const GenerationOutput& output : handle.read_all(true)) all.push_back(output);
    return all;
}

TEST_F(EngineTest, AnswersAreTheSameWithAnyDrafts) {
    // What comes depends on all tokens so far, so that a wrong one in the cache would be seen.
    const auto scores = [](const Tokens& tokens, size_t count, float* logits) {
        size_t hash = 1;
        for (size_t i = 0; i < count; ++i) hash = hash * 31 + size_t(tokens[i]);
        std::mt19937 random{unsigned(hash)};
        for (size_t i = 0; i < ScriptedModel::words; ++i) logits[i] = float(random() % 1000) / 100;
    };
    const auto most_likely = [&](const Tokens& tokens) {
        std::vector<float> logits(ScriptedModel::words);
        scores(tokens, tokens.size(), logits.data());
        return int64_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    };
    SchedulerConfig config = scheduler();
    config.enable_prefix_caching = true;
    config.num_kv_blocks = 30;
    config.max_num_batched_tokens = 20;
    const auto run = [&](size_t num_drafts, size_t percent_wrong) {
        if (num_drafts > 0)
            drafter = std::make_unique<ScriptedDrafter>(most_likely, num_drafts, percent_wrong);
        make(config);
        model->score = scores;
        std::vector<GenerationOutput> all = answers(*engine);
        EXPECT_EQ(engine->statistics().num_used_blocks, 0u);
        return all;
    };
    const std::vector<GenerationOutput> expected = run(0, 0);
    const size_t num_preemptions = engine->statistics().num_preemptions;
    EXPECT_GT(num_preemptions, 0u);
    for (const auto& [num_drafts, percent_wrong] :
         {std::pair<size_t, size_t>{1, 30}, {3, 30}, {7, 60}, {5, 100}, {12, 5}}) {
        const std::vector<GenerationOutput> drafted = run(num_drafts, percent_wrong);
        ASSERT_EQ(drafted.size(), expected.size());
        for (size_t i = 0; i < drafted.size(); ++i) {
            EXPECT_EQ(drafted[i].generated_ids, expected[i].generated_ids) << i;
            EXPECT_EQ(drafted[i].generated_log_probs, expected[i].generated_log_probs) << i;
            EXPECT_EQ(drafted[i].text, expected[i].text) << i;
            EXPECT_EQ(drafted[i].finish_reason, expected[i].finish_reason) << i;
        }
    }
}

TEST_F(EngineTest, ADrafterThatNamesNoTokenEndsItsRequestWithTheReason) {
    drafter = std::make_unique<ScriptedDrafter>(
        [](const Tokens& tokens) { return tokens.front() == 1 ? 1000 : successor(tokens); }, 2, 0);
    make();
    const GenerationHandle bad = submit({1}, greedy(9)), good = submit({2}, greedy(4));
    finish();
    EXPECT_EQ(bad.get_status(), Status::CANCEL);
    try {
        bad.read_all();
        FAIL() << "the failure is not told";
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("the drafter failed"), std::string::npos);
    }
    EXPECT_EQ(generated(good), (Tokens{3, 4, 5, 6}));
    EXPECT_EQ(num_free(), num_blocks);
}

}  // namespace
}  // namespace pagewheel
