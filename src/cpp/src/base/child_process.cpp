#include "base/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace pagewheel {
namespace {

using Clock = std::chrono::steady_clock;
using End = ProcessResult::End;
using std::chrono::milliseconds;

// How long the end of a program may go unnoticed whose output another program still holds open.
constexpr milliseconds longest_wait{50};
// The time between looks at a program that says nothing more and has not ended.
constexpr std::chrono::microseconds longest_pause{20'000};

void check_system(int error, const std::string& what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

/// An open file, closed with it and in programs that are started.
class File {
public:
    File() = default;
    /// Takes `descriptor` over, with a number above those that a program is started with.
    explicit File(int descriptor) : m_descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 3)) {
        const int error = errno;
        ::close(descriptor);
        check_system(m_descriptor < 0 ? error : 0, "cannot open a file");
    }
    File(File&& other) noexcept : m_descriptor(std::exchange(other.m_descriptor, -1)) {}
    File& operator=(File&& other) noexcept {
        std::swap(m_descriptor, other.m_descriptor);
        return *this;
    }
    ~File() { close(); }

    int get() const { return m_descriptor; }
    bool is_open() const { return m_descriptor >= 0; }
    void close() {
        if (is_open()) ::close(m_descriptor);
        m_descriptor = -1;
    }

private:
    int m_descriptor = -1;
};

/// Two ends of a connection. A socket, since writing to a pipe can raise SIGPIPE.
std::pair<File, File> connection() {
    int ends[2];
    const int failed = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
    check_system(failed ? errno : 0, "cannot open a connection");
    std::pair<File, File> files;
    try {
        files.first = File(ends[0]);
    } catch (...) {
        ::close(ends[1]);
        throw;
    }
    files.second = File(ends[1]);
    return files;
}

/// What posix_spawn() does in the program before it starts.
class SpawnSettings {
public:
    explicit SpawnSettings(bool own_group) {
        check_system(posix_spawn_file_actions_init(&m_actions), "posix_spawn");
        if (const int error = posix_spawnattr_init(&m_attributes)) {
            posix_spawn_file_actions_destroy(&m_actions);
            check_system(error, "posix_spawn");
        }
        sigset_t none, normal;
        sigemptyset(&none);
        sigemptyset(&normal);
        for (const int signal : {SIGCHLD, SIGPIPE, SIGALRM}) sigaddset(&normal, signal);
        posix_spawnattr_setsigmask(&m_attributes, &none);
        posix_spawnattr_setsigdefault(&m_attributes, &normal);
        posix_spawnattr_setpgroup(&m_attributes, 0);
        const int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                          (own_group ? POSIX_SPAWN_SETPGROUP : 0);
        posix_spawnattr_setflags(&m_attributes, static_cast<short>(flags));
    }
    SpawnSettings(const SpawnSettings&) = delete;
    SpawnSettings& operator=(const SpawnSettings&) = delete;
    ~SpawnSettings() {
        posix_spawn_file_actions_destroy(&m_actions);
        posix_spawnattr_destroy(&m_attributes);
    }

    void use(const File& file, int as) {
        check_system(posix_spawn_file_actions_adddup2(&m_actions, file.get(), as), "posix_spawn");
    }
    void drop(int descriptor) {
        check_system(
            posix_spawn_file_actions_addopen(&m_actions, descriptor, "/dev/null", O_WRONLY, 0),
            "posix_spawn");
    }
    const posix_spawn_file_actions_t* actions() const { return &m_actions; }
    const posix_spawnattr_t* attributes() const { return &m_attributes; }

private:
    posix_spawn_file_actions_t m_actions;
    posix_spawnattr_t m_attributes;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
}

/// A program that runs. It is killed with its owner.
class Child {
public:
    explicit Child(const ProcessRequest& request) {
        auto [input, its_input] = connection();
        auto [output, its_output] = connection();
        auto [errors, its_errors] = connection();
        SpawnSettings settings(request.own_group);
        settings.use(its_input, STDIN_FILENO);
        settings.use(its_output, STDOUT_FILENO);
        if (request.kept_errors > 0)
            settings.use(its_errors, STDERR_FILENO);
        else
            settings.drop(STDERR_FILENO);
        const std::vector<char*> arguments = pointers(request.command);
        const std::vector<char*> environment =
            request.environment ? pointers(*request.environment) : std::vector<char*>();
        const int error = posix_spawn(&m_pid, request.command.front().c_str(), settings.actions(),
                                      settings.attributes(), arguments.data(),
                                      request.environment ? environment.data() : environ);
        check_system(error, "cannot start " + request.command.front());
        m_input = std::move(input);
        m_output = std::move(output);
        m_errors = std::move(errors);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (m_has_ended) return;
        signal(SIGKILL);
        wait();
    }

    File& input() { return m_input; }
    File& output() { return m_output; }
    File& errors() { return m_errors; }

    /// Looks without taking its status. A process that another has waited for is not there.
    bool has_ended() const {
        siginfo_t info{};
        const int failed = waitid(P_PID, id_t(m_pid), &info, WEXITED | WNOHANG | WNOWAIT);
        return failed || info.si_pid == m_pid;
    }
    /// Signals the program while it is still ours, so that its number is no other's.
    void signal(int number) const {
        siginfo_t info{};
        if (waitid(P_PID, id_t(m_pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0)
            kill(m_pid, number);
    }
    /// Waits for the end, and says what it was.
    void wait(ProcessResult* result = nullptr) {
        int status = 0;
        pid_t waited;
        do waited = waitpid(m_pid, &status, 0);
        while (waited < 0 && errno == EINTR);
        m_has_ended = true;
        if (result == nullptr || waited != m_pid) return;
        result->end = WIFEXITED(status) ? End::EXITED : End::SIGNALLED;
        result->code = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    }

private:
    pid_t m_pid = -1;
    bool m_has_ended = false;
    File m_input, m_output, m_errors;
};

/// Moves what a program is told and says, until it ends or may not go on.
class Conversation {
public:
    Conversation(Child& child, const ProcessRequest& request, ProcessResult& result)
        : m_child(child), m_request(request), m_result(result), m_input(request.input) {}

    /// False at `deadline`.
    bool run_until(Clock::time_point deadline) {
        while (m_child.output().is_open() || m_child.errors().is_open()) {
            const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
            if (left.count() <= 0) return false;
            const bool moved = move_bytes(std::min(left, longest_wait));
            if (m_too_much) return true;
            if (!moved && m_child.has_ended()) {
                while (move_bytes(milliseconds(0)) && !m_too_much) {
                }
                return true;
            }
        }
        std::chrono::microseconds pause{50};
        for (; !m_child.has_ended(); pause = std::min(2 * pause, longest_pause)) {
            if (Clock::now() >= deadline) return false;
            std::this_thread::sleep_for(pause);
        }
        return true;
    }
    bool has_too_much() const { return m_too_much; }

private:
    /// False if nothing moved within `wait`.
    bool move_bytes(milliseconds wait) {
        if (m_input.empty()) m_child.input().close();
        const auto watched = [](const File& file, short events) {
            return pollfd{file.get(), events, 0};  // poll leaves out what is closed: -1
        };
        pollfd files[]{watched(m_child.input(), POLLOUT), watched(m_child.output(), POLLIN),
                       watched(m_child.errors(), POLLIN)};
        if (poll(files, 3, int(wait.count())) <= 0) return false;
        if (files[0].revents) send();
        if (files[1].revents) receive(m_child.output(), m_result.output);
        if (files[2].revents) receive(m_child.errors(), m_result.errors);
        m_too_much = m_result.output.size() > m_request.most_output;
        if (m_result.errors.size() > 2 * m_request.kept_errors)
            m_result.errors.erase(0, m_result.errors.size() - m_request.kept_errors);
        return true;
    }
    void send() {
        const ssize_t count = ::send(m_child.input().get(), m_input.data(), m_input.size(),
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0)
            m_input.remove_prefix(size_t(count));
        else if (errno != EAGAIN && errno != EINTR)
            m_input = {};  // it does not want to hear more
    }
    static void receive(File& file, std::string& text) {
        char part[1 << 16];
        const ssize_t count = recv(file.get(), part, sizeof part, MSG_DONTWAIT);
        if (count > 0)
            text.append(part, size_t(count));
        else if (count == 0 || (errno != EAGAIN && errno != EINTR))
            file.close();
    }

    Child& m_child;
    const ProcessRequest& m_request;
    ProcessResult& m_result;
    std::string_view m_input;
    bool m_too_much = false;
};

}  // namespace

ProcessResult run_process(const ProcessRequest& request) {
    ProcessResult result;
    Child child(request);
    Conversation conversation(child, request, result);
    const bool in_time = conversation.run_until(Clock::now() + request.time);
    if (!in_time && request.grace.count() > 0) {
        child.signal(SIGTERM);
        conversation.run_until(Clock::now() + request.grace);
    }
    if (!in_time || conversation.has_too_much()) child.signal(SIGKILL);
    child.wait(&result);
    if (!in_time)
        result.end = End::TIMED_OUT;
    else if (conversation.has_too_much())
        result.end = End::TOO_MUCH_OUTPUT;
    const size_t kept = std::min(result.errors.size(), request.kept_errors);
    result.errors.erase(0, result.errors.size() - kept);
    return result;
}

}  // namespace pagewheel
