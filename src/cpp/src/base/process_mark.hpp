// Telling a forked child from the process that made an object.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace pagewheel {

/// Remembers in which process it was made. fork() copies an object but not the threads that serve
/// it, nor does it free the locks they hold: in the child its calls would wait for ever.
class ProcessMark {
public:
    bool is_forked() const noexcept { return getpid() != m_process; }
    /// Before any lock is taken. Throws Error in a child; `what` is the object.
    void check(const char* what) const;

private:
    pid_t m_process = getpid();
};

/// Deletes the object, except in a forked child: OpenVINO's destructors would wait there for
/// threads that do not exist.
struct DeleteInOwnProcess {
    ProcessMark mark;

    template <class T>
    void operator()(T* object) const {
        if (!mark.is_forked()) delete object;
    }
};

template <class T, class... Arguments>
std::shared_ptr<T> make_shared_in_process(Arguments&&... arguments) {
    return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), DeleteInOwnProcess());
}

}  // namespace pagewheel
