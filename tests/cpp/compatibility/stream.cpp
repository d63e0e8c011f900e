// Streamers of every form. Prints the streamed text.
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "openvino/genai/llm_pipeline.hpp"
#include "openvino/genai/streamer_base.hpp"
#include "openvino/genai/text_streamer.hpp"

namespace {

/// As most are written: one token at a time.
class Counter : public ov::genai::StreamerBase {
public:
    ov::genai::StreamingStatus write(int64_t) override {
        return ++count == most ? ov::genai::StreamingStatus::STOP
                               : ov::genai::StreamingStatus::RUNNING;
    }
    void end() override { ++ends; }

    size_t most = 100, count = 0, ends = 0;
};

}  // namespace

void stream(char* argv[]) {
    const std::string prompt = argv[2];
    ov::genai::LLMPipeline pipe(argv[1], "CPU");
    ov::genai::GenerationConfig config;
    config.max_new_tokens = 6;
    const std::string want = pipe.generate(prompt, config);

    std::string text;
    std::function<bool(std::string)> by_bool = [&](std::string word) {
        text += word;
        return false;
    };
    pipe.generate(prompt, config, by_bool);
    CHECK(text == want);
    std::cout << text << '\n';

    text.clear();
    std::function<ov::genai::StreamingStatus(std::string)> by_status = [&](std::string word) {
        text += word;
        return ov::genai::StreamingStatus::RUNNING;
    };
    pipe.generate(prompt, ov::genai::streamer(by_status), ov::genai::max_new_tokens(6));
    CHECK(text == want);

    text.clear();
    pipe.generate(prompt, ov::AnyMap{{"streamer", by_bool}, {"max_new_tokens", 6}});
    CHECK(text == want);
    text.clear();
    pipe.generate(prompt, config, [&](std::string word) { text += word; });
    CHECK(text == want);
    pipe.generate(prompt, config, std::monostate());

    text.clear();
    pipe.generate(prompt, config, [&](std::string word) {
        text += word;
        return true;
    });
    CHECK(!text.empty() && text.size() < want.size() && want.rfind(text, 0) == 0);

    auto counter = std::make_shared<Counter>();
    pipe.generate(prompt, config, counter);
    CHECK(counter->count == 6 && counter->ends == 1);
    counter->count = 0;
    counter->most = 2;
    pipe.generate(prompt, ov::genai::streamer(counter), ov::genai::max_new_tokens(6));
    CHECK(counter->count == 2 && counter->ends == 2);

    text.clear();
    auto printer = std::make_shared<ov::genai::TextStreamer>(
        pipe.get_tokenizer(), [&](std::string word) -> ov::genai::CallbackTypeVariant {
            text += word;
            return ov::genai::StreamingStatus::RUNNING;
        });
    pipe.generate(prompt, config, printer);
    CHECK(text == want);
    text.clear();
    ov::genai::TextStreamer special(
        pipe.get_tokenizer(),
        [&](std::string word) {
            text += word;
            return false;
        },
        ov::AnyMap{{"skip_special_tokens", false}});
    special.write(pipe.get_tokenizer().get_eos_token_id());
    special.end();
    CHECK(text == pipe.get_tokenizer().get_eos_token());
}
