// An engine on a model that is a script, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.hpp"
#include "support/scripted_model.hpp"

namespace pagewheel {

using Tokens = std::vector<int64_t>;
using Status = GenerationStatus;
using Reason = GenerationFinishReason;
using Stage = Sequence::Stage;

inline constexpr size_t num_blocks = 64;

/// Token t is the letter 'a' + t % 26.
inline std::string letters(const Tokens& tokens) {
    std::string text;
    for (const int64_t token : tokens) text += char('a' + token % 26);
    return text;
}

class EngineTest : public testing::Test {
protected:
    static SchedulerConfig scheduler() {
        SchedulerConfig config;
        config.speculation = "off";  // a token is a step
        config.num_kv_blocks = num_blocks;
        config.max_num_batched_tokens = 8;
        return config;
    }
    void make(const SchedulerConfig& config = scheduler()) {
        auto scripted = std::make_unique<ScriptedModel>(blocks_per_state);
        model = scripted.get();
        model->gives_states = gives_states;
        EngineParts parts;
        parts.model = std::move(scripted);
        has_drafter = drafter != nullptr;
        parts.drafter = std::move(drafter);
        parts.draft_model = std::move(draft_model);
        parts.draft_context_length = draft_context_length;
        parts.vocabulary_maps = vocabulary_maps;
        parts.compile_grammar = compile_grammar;
        parts.grammar_limits = grammar_limits;
        parts.now = [this] { return now; };
        parts.context_length = 1000;
        parts.decoders = {letters, letters, [](int64_t token) { return letters({token}); }};
        engine = std::make_shared<Engine>(std::move(parts), config);
    }
    void SetUp() override { make(); }
    /// No grammar is late.
    static GrammarLimits patient() {
        GrammarLimits limits;
        limits.hold_time = std::chrono::minutes(10);
        return limits;
    }

    static GenerationConfig greedy(size_t count) {
        GenerationConfig config;
        config.max_new_tokens = count;
        return config;
    }
    GenerationHandle submit(const Tokens& prompt, const GenerationConfig& config) {
        return GenerationHandle(submit_state(prompt, config));
    }
    void finish() {
        while (engine->has_work()) engine->step();
    }
    size_t num_free() const { return engine->statistics().num_free_blocks; }
    static Tokens generated(const GenerationHandle& handle) {
        return handle.outputs_so_far().at(0).generated_ids;
    }

    /// That reading the handle throws an error with `text` in it.
    static void expect_told(const GenerationHandle& handle, const std::string& text) {
        try {
            handle.outputs_so_far();
            FAIL() << "the failure is not told";
        } catch (const std::runtime_error& error) {
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
        }
    }

    using Handle = std::shared_ptr<GenerationHandle::State>;

    /// Where a request's first sequence is; OUTSIDE once the request is over.
    static Stage stage_of(const Handle& state) {
        return state->request ? state->request->sequences.front()->stage : Stage::OUTSIDE;
    }
    Handle submit_state(const Tokens& prompt, GenerationConfig config) {
        if (has_drafter && !config.is_beam_search())
            config.num_assistant_tokens = 1000;  // all that it proposes
        return engine->submit(std::nullopt, prompt, config);
    }

    size_t blocks_per_state = 0;                            // of the next make()
    bool gives_states = false;                              // the same: hidden states
    std::unique_ptr<Drafter> drafter;                       // the same
    std::unique_ptr<Model> draft_model;                     // the same
    size_t draft_context_length = 0;                        // the same
    std::shared_ptr<const VocabularyMaps> vocabulary_maps;  // the same
    Admission::CompileGrammar compile_grammar;              // the same
    GrammarLimits grammar_limits = patient();               // the same
    Clock::time_point now = Clock::now();                   // stands still
    ScriptedModel* model = nullptr;
    bool has_drafter = false;  // of its own: the engine made last
    std::shared_ptr<Engine> engine;
};

}  // namespace pagewheel
