// Renders one chat template: a stranger's program, so within limits that the system enforces.
//
//   pagewheel-template MAX_MEMORY MAX_SECONDS MAX_CHARACTERS
//
// Standard input is JSON, {"template": ..., "context": {...}}. Standard output begins with a byte
// that says what follows: T, the text; E, what the template did wrong; R, why the limits were
// refused; M, nothing: it needs too much memory. Where the process ends without a word, the limits
// ended it.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "confinement.hpp"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "jinja/value.h"
#include "json.h"

namespace {

std::string read_all() {
    std::string all;
    char part[1 << 16];
    for (ssize_t count; (count = read(STDIN_FILENO, part, sizeof part)) > 0;)
        all.append(part, size_t(count));
    return all;
}

void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
        if (count <= 0) _exit(EXIT_FAILURE);  // nobody reads any more
        text.remove_prefix(size_t(count));
    }
}

[[noreturn]] void answer(std::string_view kind, std::string_view text) {
    write_all(kind);
    write_all(text);
    _exit(EXIT_SUCCESS);  // what has been built up is the system's to free
}

/// Characters of UTF-8.
size_t count_characters(std::string_view text) {
    size_t count = 0;
    for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    return count;
}

std::string render(const std::string& request) {
    const common_json wanted = common_json::parse(request);
    const auto source = wanted.at("template").get<std::string>();
    jinja::lexer lexer;
    const auto tokens = lexer.tokenize(source);
    jinja::program program = jinja::parse_from_tokens(tokens);
    jinja::context context(source);
    jinja::global_from_json(context, wanted.at("context"), false);
    jinja::runtime runtime(context);
    const jinja::value result = runtime.execute(program);
    return jinja::runtime::gather_string_parts(result)->as_string().str();
}

/// The engine's error, which shows a part of the source, in one line.
std::string one_line(const std::string& error) {
    constexpr std::string_view mark = "\nError: ", raised = "Jinja Exception: ";
    std::string text = error;
    std::string place;
    if (const size_t found = error.find(mark); found != std::string::npos) {
        text = error.substr(found + mark.size());
        const size_t begin = error.find(" at line "), end = error.find(" in source:");
        if (begin < end && end < found) place = error.substr(begin, end - begin);
    }
    if (text.compare(0, raised.size(), raised) == 0) return text.substr(raised.size());
    return text + place;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 4) return EXIT_FAILURE;
    try {
        pagewheel::confine(std::strtoull(arguments[1], nullptr, 10),
                           unsigned(std::strtoul(arguments[2], nullptr, 10)));
    } catch (const std::exception& error) {
        answer("R", error.what());
    }
    // Before the engine makes an error like any other of it.
    std::set_new_handler([] { answer("M", {}); });
    try {
        const std::string text = render(read_all());
        const size_t most = std::strtoull(arguments[3], nullptr, 10);
        if (count_characters(text) > most)
            answer("E", "it makes more than " + std::to_string(most) + " characters");
        answer("T", text);
    } catch (const std::exception& error) {
        answer("E", one_line(error.what()));
    }
}
