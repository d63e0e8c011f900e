// A real model under grammars of the real library: PAGEWHEEL_TEST_MODEL names the folder, and
// PAGEWHEEL_TEST_LLGUIDANCE the library, as in tests/cpp/grammar/llguidance_test.cpp.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "pagewheel/grammar.hpp"
#include "pagewheel/pagewheel.hpp"

namespace pagewheel {
namespace {

const std::string question = "What is the number of the house?";
const std::string number = "(house|flat) number [0-9]{1,3}, on the left side of the street";

class PipelineGrammar : public testing::Test {
protected:
    void SetUp() override {
        const char* python = std::getenv("PAGEWHEEL_TEST_LIBPYTHON");
        if (python && !dlopen(python, RTLD_NOW | RTLD_GLOBAL)) FAIL() << dlerror();
        const char* library = std::getenv("PAGEWHEEL_TEST_LLGUIDANCE");
        if (!library || !std::getenv("PAGEWHEEL_TEST_MODEL"))
            GTEST_SKIP() << "PAGEWHEEL_TEST_LLGUIDANCE or PAGEWHEEL_TEST_MODEL is not set";
        set_grammar_library(library);
    }
    static ContinuousBatchingPipeline pipeline() {
        SchedulerConfig scheduler;
        scheduler.num_kv_blocks = 60;
        return {std::getenv("PAGEWHEEL_TEST_MODEL"), scheduler};
    }
    static GenerationConfig with_grammar() {
        GenerationConfig config;
        config.max_new_tokens = 60;
        config.structured_output_config.emplace().regex = number;
        return config;
    }
    static void check(const std::string& text) {
        EXPECT_TRUE(std::regex_match(text, std::regex(number))) << text;
    }
};

TEST_F(PipelineGrammar, EveryWayOfDecodingFollowsIt) {
    auto loaded = pipeline();
    std::vector<GenerationConfig> configs(4, with_grammar());
    configs[1].do_sample = true;
    configs[1].temperature = 1.5f;
    configs[1].num_return_sequences = 3;
    configs[2].num_beams = 3;
    configs[2].num_return_sequences = 3;
    configs[3].logprobs = 2;
    const auto results = loaded.generate(std::vector<std::string>(4, question), configs);
    for (const GenerationResult& result : results)
        for (const std::string& text : result.m_generation_ids) check(text);
    EXPECT_EQ(results[0].m_generation_ids, results[3].m_generation_ids);
}

TEST_F(PipelineGrammar, AThreadThatStepsGivesItToManyCallers) {
    auto loaded = pipeline();
    loaded.start();
    std::vector<std::shared_ptr<GenerationHandle>> handles;
    for (uint64_t i = 0; i < 8; ++i) {
        GenerationConfig config = with_grammar();
        config.do_sample = true;
        config.rng_seed = i;
        handles.push_back(loaded.add_request(i, question, config));
    }
    handles[3]->cancel();
    for (size_t i = 0; i < handles.size(); ++i) {
        if (i == 3) continue;
        const auto outputs = handles[i]->read_all(/*with_text=*/true);
        check(outputs.at(0).text);
        EXPECT_EQ(outputs.at(0).finish_reason, GenerationFinishReason::STOP);
    }
    handles.push_back(loaded.add_request(8, question, with_grammar()));
    loaded.stop();  // within its steps
}

TEST_F(PipelineGrammar, IsAPropertyAndRefusedWithItsPlace) {
    LLMPipeline loaded(std::getenv("PAGEWHEEL_TEST_MODEL"), "CPU");
    StructuredOutputConfig grammar;
    grammar.regex = number;
    check(loaded.generate(question, properties::structured_output_config(grammar),
                          properties::max_new_tokens(60)));
    grammar.regex.reset();
    grammar.json_schema = R"({"properties": {"a": {"not": {}}}})";
    try {
        loaded.generate(question, properties::structured_output_config(grammar),
                        properties::max_new_tokens(60));
        FAIL() << "it is not refused";
    } catch (const GrammarError& error) {
        EXPECT_NE(std::string(error.what()).find("/properties/a/not"), std::string::npos);
    }
}

}  // namespace
}  // namespace pagewheel
