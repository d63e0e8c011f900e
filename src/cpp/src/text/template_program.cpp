#include "text/chat_template.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/check.hpp"
#include "base/child_process.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "text/utf8.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

// No real conversation takes a hundredth of it.
constexpr unsigned max_seconds = 10;
constexpr size_t max_memory = size_t(512) << 20;
constexpr size_t max_characters = size_t(16) << 20;
// Characters of an error's message: a template may choose it.
constexpr size_t max_error = 1000;
// What templates can take of a machine's memory is that of so many.
constexpr size_t max_processes = 4;

/// The right to run one process. The constructor waits until fewer than max_processes run.
class ProcessSlot {
public:
    ProcessSlot() {
        std::unique_lock lock(all().mutex);
        all().changed.wait(lock, [] { return all().num_running < max_processes; });
        ++all().num_running;
    }
    ~ProcessSlot() {
        const std::lock_guard lock(all().mutex);
        --all().num_running;
        all().changed.notify_one();
    }
    ProcessSlot(const ProcessSlot&) = delete;
    ProcessSlot& operator=(const ProcessSlot&) = delete;

private:
    struct All {
        std::mutex mutex;
        std::condition_variable changed;
        size_t num_running = 0;
    };
    static All& all() {
        static All only;
        return only;
    }
};

std::string encoded(const ChatTemplateInputs& inputs) {
    using json = nlohmann::ordered_json;
    const auto parsed = [](const std::string& text, const char* what) {
        json value = parse_ordered_json(text, what);
        check_argument(!value.is_discarded(), what, " is not JSON");
        return value;
    };
    const json tools = parsed(inputs.tools_json, "the list of tools");
    json context{{"messages", parsed(inputs.messages_json, "the list of messages")},
                 {"tools", tools.empty() ? json() : tools},
                 {"documents", json()},
                 {"add_generation_prompt", inputs.add_generation_prompt},
                 {"bos_token", inputs.bos_token},
                 {"eos_token", inputs.eos_token}};
    context.update(parsed(inputs.extra_context_json, "the extra context"));
    return json_text(json{{"template", inputs.chat_template}, {"context", std::move(context)}});
}

/// The environment of the process: only the time zone, for strftime_now.
std::vector<std::string> environment() {
    std::vector<std::string> kept;
    for (const char* name : {"TZ", "TZDIR"})
        if (const char* value = std::getenv(name)) kept.push_back(concat(name, "=", value));
    return kept;
}

ProcessResult run(const fs::path& program, const std::string& input) {
    ProcessRequest request;
    // The process would end itself a second after it is ended.
    request.command = {program.string(), std::to_string(max_memory),
                       std::to_string(max_seconds + 1), std::to_string(max_characters)};
    request.environment = environment();
    request.input = input;
    request.time = std::chrono::seconds(max_seconds);
    request.most_output = 1 + 4 * max_characters;
    request.own_group = true;
    const ProcessSlot slot;
    return run_process(request);
}

/// Whether somebody outside ended it, as a system does that is short of memory: what a template
/// does ends the process by other signals.
bool was_killed(const ProcessResult& result) {
    return result.end == ProcessResult::End::SIGNALLED &&
           (result.code == SIGKILL || result.code == SIGTERM);
}

[[noreturn]] void refuse(const std::string& what) {
    throw InvalidArgument("chat template: " + what, ErrorCode::chat_template_failed);
}

/// What became of a process that gave no answer.
std::string ending(const ProcessResult& result) {
    using End = ProcessResult::End;
    if (result.end == End::TIMED_OUT || (result.end == End::SIGNALLED && result.code == SIGALRM))
        return concat("it takes longer than ", max_seconds, " seconds");
    if (result.end == End::TOO_MUCH_OUTPUT)
        return concat("it makes more than ", max_characters, " characters");
    if (result.end == End::SIGNALLED && result.code == SIGSEGV)
        return "it calls itself without an end, or is nested too deeply (signal 11)";
    if (result.end == End::SIGNALLED)
        return concat("the process that rendered it was ended by signal ", result.code);
    return concat("the process that rendered it ended with code ", result.code);
}

std::string answer(const ProcessResult& result) {
    const bool has_ended =
        result.end == ProcessResult::End::EXITED || result.end == ProcessResult::End::UNKNOWN;
    if (!has_ended || result.output.empty()) refuse(ending(result));
    std::string text = result.output.substr(1);
    switch (result.output.front()) {
        case 'T':
            if (find_invalid_utf8(text)) refuse("it makes text that is not UTF-8");
            return text;
        case 'M':
            refuse(concat("it needs too much memory; ", max_memory >> 20, " MB are allowed"));
        case 'R':
            throw Error(
                concat("chat templates are rendered by a process with limits, and it may not limit "
                       "itself: ",
                       text),
                ErrorCode::dependency_missing);
        default:
            text.resize(std::min(text.size(), max_error));
            refuse(replace_invalid_utf8(text));
    }
}

/// $PAGEWHEEL_TEMPLATE_PROGRAM, else beside this library; PATH is not searched. It may be missing.
fs::path find_template_program() {
    if (const char* own = secure_getenv("PAGEWHEEL_TEMPLATE_PROGRAM")) return own;
    Dl_info library{};
    const bool found = dladdr(reinterpret_cast<void*>(&find_template_program), &library) != 0;
    return found ? fs::absolute(library.dli_fname).parent_path() / "pagewheel-template"
                 : fs::path();
}

}  // namespace

std::string render_by_program(const ChatTemplateInputs& inputs) {
    const fs::path program = find_template_program();
    const std::string input = encoded(inputs);
    ProcessResult result;
    try {
        result = run(program, input);
        if (was_killed(result)) result = run(program, input);
    } catch (const std::system_error& error) {
        throw Error(
            concat(
                "this chat needs the program pagewheel-template: ", error.what(),
                ". It is installed beside the library. PAGEWHEEL_TEMPLATE_PROGRAM may name it, or "
                "set a renderer with Tokenizer::set_chat_template_renderer"),
            ErrorCode::dependency_missing);
    }
    if (was_killed(result))
        throw Error(
            concat("the process that renders chat templates was ended by signal ", result.code));
    return answer(result);
}

}  // namespace pagewheel
