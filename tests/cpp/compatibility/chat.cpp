// A conversation by start_chat(), and the same by a history: prints its two answers.
#include <iostream>
#include <string>

#include "check.hpp"
#include "openvino/genai/chat_history.hpp"
#include "openvino/genai/llm_pipeline.hpp"

void chat(char* argv[]) {
    const std::string question = argv[2];
    ov::genai::LLMPipeline pipe(argv[1], "CPU");
    ov::genai::GenerationConfig config = pipe.get_generation_config();
    config.max_new_tokens = 6;

    std::string answers[2];
    pipe.start_chat("Be brief.");
    for (std::string& answer : answers) answer = pipe.generate(question, config);
    pipe.finish_chat();

    ov::genai::ChatHistory chat_history({{{"role", "system"}, {"content", "Be brief."}}});
    for (const std::string& answer : answers) {
        chat_history.push_back({{"role", "user"}, {"content", question}});
        ov::genai::DecodedResults results = pipe.generate(chat_history, config);
        std::string output = results.texts[0];
        CHECK(output == answer);
        chat_history.push_back({{"role", "assistant"}, {"content", std::move(output)}});
        std::cout << answer << '\n';
    }
    CHECK(chat_history.size() == 5 && !chat_history.empty());
    CHECK(chat_history[0]["content"].get_string() == "Be brief.");
    CHECK(chat_history.first()["role"] == "system");
    CHECK(chat_history.last()["content"].as_string() == answers[1]);
    CHECK(chat_history.get_messages().size() == 5);

    chat_history.last()["content"] = "changed";
    CHECK(chat_history[4]["content"] == "changed");
    chat_history.pop_back();
    CHECK(chat_history.size() == 4);
    chat_history.push_back(ov::AnyMap{{"role", "user"}, {"content", "again"}});
    CHECK(chat_history.last().to_json_string() == R"({"content":"again","role":"user"})");
    chat_history.clear();
    CHECK(chat_history.empty());
    chat_history = {{{"role", "user"}, {"content", "a"}},
                    {{"role", "assistant"}, {"content", "b"}}};
    CHECK(chat_history.size() == 2);

    auto tools = ov::genai::JsonContainer::array();
    tools.push_back(ov::genai::JsonContainer{
        {"type", "function"},
        {"function", ov::genai::JsonContainer{{"name", "add"}, {"strict", true}, {"version", 2}}}});
    chat_history.set_tools(tools);
    CHECK(chat_history.get_tools()[0]["function"]["version"].get_int() == 2);
    CHECK(tools.to_json_string() ==
          R"([{"type":"function","function":{"name":"add","strict":true,"version":2}}])");
    chat_history.set_extra_context({{"enable_thinking", false}});
    CHECK(!chat_history.get_extra_context()["enable_thinking"].get_bool());
}
