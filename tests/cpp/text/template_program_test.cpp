#include "text/chat_template.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "pagewheel/errors.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

ChatTemplateInputs inputs(const std::string& chat_template, const std::string& content = "Hi") {
    const nlohmann::ordered_json messages{{{"role", "user"}, {"content", content}}};
    return {chat_template, messages.dump(), "[]", "{}", "<s>", "</s>", true};
}

/// An environment variable for as long as it lives.
class Variable {
public:
    Variable(std::string name, const std::string& value) : m_name(std::move(name)) {
        if (const char* before = std::getenv(m_name.c_str())) m_before = before;
        setenv(m_name.c_str(), value.c_str(), 1);
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() {
        if (m_before)
            setenv(m_name.c_str(), m_before->c_str(), 1);
        else
            unsetenv(m_name.c_str());
    }

private:
    std::string m_name;
    std::optional<std::string> m_before;
};

class TemplateProgram : public testing::Test {
    const Variable m_program{"PAGEWHEEL_TEMPLATE_PROGRAM", TEMPLATE_PROGRAM};
};

/// The error of a template, and that the next one renders.
std::string refusal(const std::string& chat_template) {
    try {
        ADD_FAILURE() << render_by_program(inputs(chat_template));
    } catch (const InvalidArgument& error) {
        EXPECT_EQ(render_by_program(inputs("{{ messages[0].content }}")), "Hi");
        return error.what();
    }
    return {};
}

TEST_F(TemplateProgram, SeesTheConversationAndItsSettings) {
    ChatTemplateInputs all = inputs(
        "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ tools | tojson }}{{ extra }}"
        "{% if add_generation_prompt %}go{% endif %}{% if documents is none %}!{% endif %}",
        "h\xC3\xA9");
    all.tools_json = R"([{"z": 1, "a": "<é>"}])";
    all.extra_context_json = R"({"extra": "more", "eos_token": "mine"})";
    EXPECT_EQ(render_by_program(all), "<s>h\xC3\xA9mine[{\"z\": 1, \"a\": \"<é>\"}]morego!");
}

TEST_F(TemplateProgram, NoToolsAreNone) {
    EXPECT_EQ(render_by_program(inputs("{{ tools is none }}")), "True");
}

TEST_F(TemplateProgram, ARefusalIsTheTemplatesOwn) {
    EXPECT_EQ(refusal("{{ raise_exception('Roles must alternate!') }}"),
              "chat template: Roles must alternate!");
    EXPECT_NE(refusal("{% if %}").find("chat template: "), std::string::npos);
}

TEST_F(TemplateProgram, AnErrorsMessageIsShort) {
    EXPECT_LT(refusal("{% set n = namespace(s='ab') %}{% for i in range(20) %}"
                      "{% set n.s = n.s ~ n.s %}{% endfor %}{{ raise_exception(n.s) }}")
                  .size(),
              1100u);
}

TEST_F(TemplateProgram, ATemplateWithoutAnEndIsEnded) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string error =
        refusal("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
    EXPECT_EQ(error, "chat template: it takes longer than 10 seconds");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(13));
}

TEST_F(TemplateProgram, MemoryHasABound) {
    EXPECT_EQ(refusal("{% set n = namespace(s='ab') %}{% for i in range(60) %}"
                      "{% set n.s = n.s ~ n.s %}{% endfor %}"),
              "chat template: it needs too much memory; 512 MB are allowed");
}

TEST_F(TemplateProgram, CharactersHaveABound) {
    const std::string emoji = "\xF0\x9F\x91\x8B";
    std::string most;
    for (size_t i = 0; i < 12'000'000; ++i) most += emoji;
    EXPECT_EQ(render_by_program(inputs("{{ messages[0].content }}", most)), most);
    try {
        render_by_program(inputs("{{ messages[0].content }}", std::string((16 << 20) + 1, 'a')));
        FAIL();
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "chat template: it makes more than 16777216 characters");
    }
}

TEST_F(TemplateProgram, EndlessRecursionEndsOnlyItsProcess) {
    for (const std::string& nested :
         {std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
          "{{" + std::string(5000, '(') + "1" + std::string(5000, ')') + "}}",
          "{{" + std::string(100'000, '[')})
        EXPECT_EQ(refusal(nested),
                  "chat template: it calls itself without an end, or is nested too deeply "
                  "(signal 11)");
}

TEST_F(TemplateProgram, ThreadsGetTheirOwnAnswers) {
    std::atomic<size_t> wrong{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number)
        threads.emplace_back([&, number] {
            for (int i = 0; i < 10; ++i) {
                const std::string text(1000, char('a' + number));
                wrong += render_by_program(inputs("{{ messages[0].content }}", text)) != text;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST_F(TemplateProgram, WorksWhereThisProgramIgnoresItsChildren) {
    const auto before = signal(SIGCHLD, SIG_IGN);
    const std::string text = render_by_program(inputs("{{ messages[0].content }}"));
    const std::string error = refusal("{{ raise_exception('no') }}");
    signal(SIGCHLD, before);
    EXPECT_EQ(text, "Hi");
    EXPECT_EQ(error, "chat template: no");
}

TEST_F(TemplateProgram, AMissingProgramIsAnErrorThatSaysWhatToDo) {
    const Variable nowhere("PAGEWHEEL_TEMPLATE_PROGRAM", "/nowhere/program");
    try {
        render_by_program(inputs("x"));
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("/nowhere/program"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("set_chat_template_renderer"), std::string::npos);
    }
}

/// A program that kills itself as long as its folder has a file "killed".
std::string killed_program(const fs::path& folder, const char* then) {
    fs::create_directories(folder);
    std::ofstream(folder / "killed") << "";
    std::ofstream(folder / "program")
        << "#!/bin/sh\ncat > /dev/null\nif [ -e " << (folder / "killed").string() << " ]; then "
        << then << "; kill -KILL $$; fi\necho T$(ls " << folder.string() << ")\n";
    fs::permissions(folder / "program", fs::perms::owner_all);
    return (folder / "program").string();
}

TEST_F(TemplateProgram, AProcessThatIsKilledIsTriedOnceMore) {
    const fs::path folder = fs::temp_directory_path() / "pagewheel-killed-once";
    const std::string once = "/bin/rm " + (folder / "killed").string();
    const Variable program("PAGEWHEEL_TEMPLATE_PROGRAM", killed_program(folder, once.c_str()));
    EXPECT_EQ(render_by_program(inputs("x")), "program\n");
    fs::remove_all(folder);
}

TEST_F(TemplateProgram, AProcessThatIsKilledAgainIsNotTheTemplatesFault) {
    const fs::path folder = fs::temp_directory_path() / "pagewheel-killed-always";
    const Variable program("PAGEWHEEL_TEMPLATE_PROGRAM", killed_program(folder, ":"));
    try {
        render_by_program(inputs("x"));
        FAIL();
    } catch (const InvalidArgument& error) {
        FAIL() << error.what();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "the process that renders chat templates was ended by signal 9");
    }
    fs::remove_all(folder);
}

TEST_F(TemplateProgram, ProgramsInPathAreNotTaken) {
    const fs::path folder = fs::temp_directory_path() / "pagewheel-path-test";
    fs::create_directories(folder);
    std::ofstream(folder / "pagewheel-template") << "#!/bin/sh\necho TIn PATH\n";
    fs::permissions(folder / "pagewheel-template", fs::perms::owner_all);
    const Variable path("PATH", folder.string());
    EXPECT_EQ(render_by_program(inputs("{{ messages[0].content }}")), "Hi");
    fs::remove_all(folder);
}

TEST(ChatTemplateOfPieces, GoesToTheProgramForWhatConversionHasNotCompared) {
    const Variable program("PAGEWHEEL_TEMPLATE_PROGRAM", TEMPLATE_PROGRAM);
    const auto format = ChatFormat::from_json(nlohmann::json::parse(
        R"({"roles": {"user": {"before": "pieces:", "after": ""}}, "generation_prompt": ""})"));
    const ChatTemplate chat("jinja:{{ messages[-1].content }}", format, "", "");
    ChatHistory history;
    history.append("user", "a");
    EXPECT_EQ(chat.render(history, false, ""), "pieces:a");
    EXPECT_EQ(chat.render(history, false, "other {{ messages[0].role }}"), "other user");
    history.append("user", "b");
    EXPECT_EQ(chat.render(history, false, ""), "jinja:b");
}

}  // namespace
}  // namespace pagewheel
