// Every stage of a sequence, and a cancel in each.
#include <chrono>

#include "support/engine_fixture.hpp"

namespace pagewheel {
namespace {

using EngineStages = EngineTest;

TEST_F(EngineStages, ASequenceGoesThroughItsStages) {
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
            was_preempted = was_preempted || (stage_of(state) == Stage::WAITING &&
                                              state->request->sequences.front()->is_preempted());
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

TEST_F(EngineStages, TheQueueIsTimedUntilTheFirstStep) {
    SchedulerConfig config = scheduler();
    config.max_num_seqs = 1;
    make(config);
    const Handle first = submit_state(Tokens(4, 5), greedy(4));
    now -= std::chrono::seconds(20);  // it came so long ago
    const Handle second = submit_state(Tokens(4, 9), greedy(2));
    engine->step();
    EXPECT_TRUE(second->metrics.raw_metrics.queue_durations.empty());
    while (engine->has_work()) engine->step();
    const RawPerfMetrics& raw = second->metrics.raw_metrics;
    EXPECT_EQ(first->metrics.raw_metrics.queue_durations.size(), 1u);
    ASSERT_EQ(raw.queue_durations.size(), 1u);
    EXPECT_GE(raw.queue_durations[0], 20'000'000.0f);  // microseconds
    ASSERT_EQ(raw.m_times_to_first_token.size(), 1u);
    EXPECT_LE(raw.queue_durations[0], raw.m_times_to_first_token[0]);
}

TEST_F(EngineStages, BeamsThatArePreemptedWhileTheOthersAreScoredAreSuspended) {
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
            for (const auto& beam : searching->request->sequences)
                suspended = suspended || beam->stage == Stage::SUSPENDED;
    }
    EXPECT_TRUE(suspended);
    EXPECT_EQ(searching->status, Status::FINISHED);
    EXPECT_EQ(searching->outputs.size(), 4u);
    EXPECT_EQ(other->outputs[0].all.generated_ids.size(), 20u);
    EXPECT_EQ(num_free(), 12u);
}

TEST_F(EngineStages, ACancelAtAnyStepFreesItsOwnBlocksAloneWhateverTheStage) {
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

}  // namespace
}  // namespace pagewheel
