#include "base/thread_use.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace pagewheel {

pid_t this_thread_number() {
    return pid_t(syscall(SYS_gettid));
}

void lower_priority(pid_t thread_number) {
    constexpr int steps = 10;
    const auto id = id_t(thread_number);
    errno = 0;
    const int now = getpriority(PRIO_PROCESS, id);
    // What fails leaves the thread as it was.
    if (errno == 0) static_cast<void>(setpriority(PRIO_PROCESS, id, now + steps));
}

std::chrono::nanoseconds processor_time(pthread_t thread) {
    clockid_t clock;
    timespec time;
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace pagewheel
