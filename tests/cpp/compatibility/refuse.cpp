// Every refusal is an ov::Exception and a std::exception, with a message alone.
#include <iostream>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "openvino/genai/continuous_batching_pipeline.hpp"

namespace {

template <class Call>
std::string refusal(const Call& call) {
    std::string as_exception;
    try {
        call();
    } catch (const std::exception& error) {
        as_exception = error.what();
    }
    try {
        call();
    } catch (const ov::Exception& error) {
        CHECK(error.what() == as_exception);
        CHECK(as_exception.find("Exception from") == std::string::npos);
        std::cout << as_exception << '\n';
        return as_exception;
    }
    CHECK(false);
    return {};
}

}  // namespace

void refuse(char* argv[]) {
    const std::string folder = argv[1], prompt = argv[2];
    using ov::genai::LLMPipeline;
    LLMPipeline pipe(folder, "CPU");
    ov::genai::GenerationConfig config;
    refusal([&] { LLMPipeline("/nowhere", "CPU"); });
    refusal([&] { LLMPipeline(folder, "XPU"); });
    refusal([&] { LLMPipeline(folder, "CPU", {{"NO_SUCH_PROPERTY", 1}}); });
    refusal([&] { LLMPipeline(folder, "CPU", ov::genai::draft_model("/nowhere", "CPU")); });
    refusal([&] { LLMPipeline(folder, "CPU", {{"scheduler_config", 1}}); });
    refusal([&] { ov::genai::Tokenizer("/nowhere"); });
    refusal([&] { pipe.generate(prompt, ov::genai::max_new_tokens(0)); });
    CHECK(refusal([&] {
              pipe.generate(prompt, ov::genai::max_new_tokens(-1));
          }).find("max_new_tokens") != std::string::npos);
    CHECK(refusal([&] { pipe.generate(prompt, ov::AnyMap{{"no_such", 1}}); }).find("no_such") !=
          std::string::npos);
    refusal([&] { pipe.generate(prompt, ov::AnyMap{{"streamer", 1}}); });
    refusal([&] { pipe.generate(prompt, ov::AnyMap{{"generation_config", 1}}); });
    config.do_sample = true;
    config.top_p = 2;
    refusal([&] { pipe.generate(prompt, config); });
    refusal([&] { pipe.get_tokenizer().encode(prompt, {{"no_such", 1}}); });
    refusal([&] { pipe.get_tokenizer().encode(prompt, {{"padding_side", "middle"}}); });
    refusal([&] { ov::genai::ChatHistory().last(); });
    refusal([&] { ov::genai::ChatHistory().pop_back(); });
    refusal([&] { ov::genai::JsonContainer({{"a", 1}})["a"].get_string(); });
    refusal([&] { ov::genai::JsonContainer()["a"].get_string(); });

    ov::genai::ContinuousBatchingPipeline batching(folder, ov::genai::SchedulerConfig(), "CPU");
    config = {};
    config.max_new_tokens = 2;
    refusal([&] { batching.add_request(0, ov::Tensor(ov::element::i64, {2, 2}), config); });
    ov::genai::GenerationHandle handle = batching.add_request(0, prompt, config);
    refusal([&] { batching.add_request(0, prompt, config); });
    handle->stop();
    refusal([&] { handle->read(); });
}
