// This process: whether it was forked, what its threads use, and what limits it.
#pragma once

#include <sys/types.h>
#include <unistd.h>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pagewheel {

/// Remembers in which process it was made. fork() copies an object but not the threads that serve
/// it, nor does it free the locks they hold: in the child its calls would wait for ever.
class ProcessMark {
public:
    bool is_forked() const noexcept { return getpid() != m_process; }
    /// Throws Error in a child; `what` is the object. It is called before any lock is taken.
    void check(const char* what) const;

private:
    pid_t m_process = getpid();
};

/// The object is not deleted in a forked child: OpenVINO's destructors would wait there for threads
/// that do not exist.
template <class T, class... Arguments>
std::shared_ptr<T> make_shared_in_process(Arguments&&... arguments) {
    const auto remove = [mark = ProcessMark()](T* object) {
        if (!mark.is_forked()) delete object;
    };
    return {new T(std::forward<Arguments>(arguments)...), remove};
}

/// The thread that makes it. For others, while that thread runs.
class RunningThread {
public:
    RunningThread();
    /// It gets a processor where no other thread wants it. For good: only a privileged process
    /// could raise the priority again.
    void lower_priority() const;
    /// Time that it has had on processors; 0 where it is not known.
    std::chrono::nanoseconds processor_time() const;

private:
    pid_t m_number;
    clockid_t m_clock;
};

/// A group's folder, and the version that says which files it has.
struct ControlGroup {
    std::filesystem::path folder;
    bool version_2 = false;
};

/// The groups that may limit what `controller` ("cpu", "memory") counts: in each mounted hierarchy
/// from its top down to the process's own. A group has at most what those above it have.
/// `root` is the folder that /proc and what is mounted are looked for in.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::filesystem::path& root = "/");

}  // namespace pagewheel
