// Running another program, with bounds on its time and on what it says.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pagewheel {

struct ProcessRequest {
    /// The program's path and its arguments. No shell sees them, and PATH is not searched.
    std::vector<std::string> command;
    /// NAME=value each; unset: this process's own.
    std::optional<std::vector<std::string>> environment;
    std::string_view input;  ///< its standard input
    std::chrono::milliseconds time{0};
    /// What it has between SIGTERM and SIGKILL when its time is over.
    std::chrono::milliseconds grace{0};
    size_t most_output = 0;  ///< bytes of standard output; with more it is ended
    size_t kept_errors = 0;  ///< last bytes of standard error that are kept; 0: it goes nowhere
    /// A group of its own: a terminal's Ctrl-C is not for it.
    bool own_group = false;
};

struct ProcessResult {
    enum class End {
        EXITED,
        SIGNALLED,
        TIMED_OUT,
        TOO_MUCH_OUTPUT,
        UNKNOWN,  ///< ended, but another part of the program has taken its status
    };
    End end = End::UNKNOWN;
    int code = 0;  ///< exit code or signal
    std::string output, errors;
};

/// Starts the program and waits for its end. May be called from any thread, in programs of many
/// threads and whatever they do with SIGCHLD and SIGPIPE. No other file of this process is left
/// open in it that is marked close-on-exec. Throws std::system_error if it cannot be started.
ProcessResult run_process(const ProcessRequest& request);

}  // namespace pagewheel
