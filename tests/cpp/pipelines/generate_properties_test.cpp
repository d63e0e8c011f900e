#include "pipelines/pipeline_impl.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "pagewheel/errors.hpp"
#include "pagewheel/properties.hpp"

namespace pagewheel {
namespace {

GenerateProperties read(const ov::AnyMap& properties) {
    GenerationConfig config;
    config.max_new_tokens = 9;
    return read_generate_properties(config, properties);
}

/// What its callback answers to "a", which it must get.
StreamingStatus answer(const StreamerVariant& streamer) {
    return std::get<TextStreamer::Callback>(streamer)("a");
}

class OneByOne : public StreamerBase {
public:
    StreamingStatus write(int64_t token) override {
        last = token;
        return token == 2 ? StreamingStatus::CANCEL : StreamingStatus::RUNNING;
    }
    void end() override {}

    int64_t last = 0;
};

class Neither : public StreamerBase {
public:
    void end() override {}
};

TEST(GenerateProperties, SetWhatTheyNameInThePipelinesConfig) {
    const GenerateProperties given = read({properties::echo(true)});
    ASSERT_EQ(given.configs.size(), 1u);
    EXPECT_EQ(given.configs[0].max_new_tokens, 9u);
    EXPECT_TRUE(given.configs[0].echo);
    EXPECT_TRUE(std::holds_alternative<std::monostate>(given.streamer));
}

TEST(GenerateProperties, AListOfConfigsIsOneForEachPrompt) {
    std::vector<GenerationConfig> list(2);
    list[1].max_new_tokens = 3;
    const GenerateProperties given = read({{"generation_config", list}, properties::echo(true)});
    ASSERT_EQ(given.configs.size(), 2u);
    EXPECT_EQ(given.configs[1].max_new_tokens, 3u);
    EXPECT_TRUE(given.configs[0].echo && given.configs[1].echo);
}

TEST(GenerateProperties, ACallbackMayAnswerInSeveralWays) {
    using Either = std::variant<bool, StreamingStatus>;
    const std::function<bool(std::string)> stops = [](std::string text) { return text == "a"; };
    const std::function<void(std::string)> nothing = [](std::string) {};
    const std::function<StreamingStatus(std::string)> status = [](std::string) {
        return StreamingStatus::CANCEL;
    };
    EXPECT_EQ(answer(read({{"streamer", stops}}).streamer), StreamingStatus::STOP);
    EXPECT_EQ(answer(read({{"streamer", nothing}}).streamer), StreamingStatus::RUNNING);
    EXPECT_EQ(answer(read({{"streamer", status}}).streamer), StreamingStatus::CANCEL);
    EXPECT_EQ(answer(read({properties::streamer([](std::string) { return false; })}).streamer),
              StreamingStatus::RUNNING);
    EXPECT_EQ(answer(read({properties::streamer([](std::string) -> Either {
                         return StreamingStatus::TOOL_CALL_STOP;
                     })}).streamer),
              StreamingStatus::TOOL_CALL_STOP);
    EXPECT_EQ(
        answer(read({properties::streamer([](std::string) -> Either { return true; })}).streamer),
        StreamingStatus::STOP);
    const std::function<bool(std::string)> none;
    EXPECT_FALSE(std::get<TextStreamer::Callback>(read({{"streamer", none}}).streamer));
}

TEST(GenerateProperties, AStreamerThatTakesOneTokenGetsThemOneByOneUntilItEnds) {
    const auto streamer = std::make_shared<OneByOne>();
    const auto given = read({properties::streamer(streamer)}).streamer;
    StreamerBase& base = *std::get<std::shared_ptr<StreamerBase>>(given);
    EXPECT_EQ(base.write({1, 2, 3}), StreamingStatus::CANCEL);
    EXPECT_EQ(streamer->last, 2);
    EXPECT_EQ(base.write({1}), StreamingStatus::RUNNING);
    EXPECT_THROW(Neither().StreamerBase::write({1}), Error);
}

TEST(GenerateProperties, AWrongStreamerOrSchedulerIsRefused) {
    EXPECT_THROW(read({{"streamer", 1}}), InvalidArgument);
    ov::AnyMap properties{{"scheduler_config", 1}};
    EXPECT_THROW(take_scheduler_config(properties, {}), InvalidArgument);
}

TEST(GenerateProperties, ASchedulerConfigIsTakenOutOfAPipelinesProperties) {
    SchedulerConfig config;
    config.max_num_seqs = 3;
    ov::AnyMap properties{properties::scheduler_config(config), {"CACHE_DIR", "a"}};
    EXPECT_EQ(take_scheduler_config(properties, {}).max_num_seqs, 3u);
    EXPECT_EQ(properties.count("scheduler_config"), 0u);
    EXPECT_EQ(properties.size(), 1u);
    EXPECT_EQ(take_scheduler_config(properties, config).max_num_seqs, 3u);
}

}  // namespace
}  // namespace pagewheel
