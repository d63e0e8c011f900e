// programs NAME FOLDER PROMPT: runs one of the programs, each of which has a file of its own.
#include <iostream>
#include <map>
#include <string>

#include "check.hpp"

using Program = void(char* argv[]);
Program generate, chat, tokenize, batch, stream, configure, refuse, not_yet, constrain, parse,
    memory;

int main(int argc, char* argv[]) try {
    CHECK(argc == 4);
    const std::map<std::string, Program*> programs{
        {"generate", generate}, {"chat", chat},       {"tokenize", tokenize},
        {"batch", batch},       {"stream", stream},   {"configure", configure},
        {"refuse", refuse},     {"not_yet", not_yet}, {"constrain", constrain},
        {"parse", parse},       {"memory", memory},
    };
    programs.at(argv[1])(argv + 1);
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
}
