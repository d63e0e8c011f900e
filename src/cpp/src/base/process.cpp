#include "base/process.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

void ProcessMark::check(const char* what) const {
    if (!is_forked()) return;
    throw Error(
        concat("this ", what, " was made in process ", m_process, ", and its threads are not in ",
               getpid(),
               ", which fork() made of it: start children with exec (multiprocessing's \"spawn\")"),
        ErrorCode::invalid_state);
}

RunningThread::RunningThread() : m_number(pid_t(syscall(SYS_gettid))) {
    if (pthread_getcpuclockid(pthread_self(), &m_clock) != 0) m_clock = CLOCK_THREAD_CPUTIME_ID;
}

void RunningThread::lower_priority() const {
    const sched_param none = {};
    // What fails leaves the thread as it was.
    static_cast<void>(sched_setscheduler(m_number, SCHED_IDLE, &none));
}

std::chrono::nanoseconds RunningThread::processor_time() const {
    timespec time;
    if (clock_gettime(m_clock, &time) != 0) return {};
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

namespace {

namespace fs = std::filesystem;

/// A mounted hierarchy of control groups, and the process's group in it.
struct Hierarchy {
    bool version_2 = false;
    std::string mounted;  // the group that the mount point shows: "/" or a container's own
    std::string mount_point;
    std::string group;
};

std::vector<std::string> lines_of(const fs::path& file) {
    std::ifstream stream(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// Whether a list like "cpu,cpuacct" has the entry.
bool has_entry(const std::string& list, const std::string& entry) {
    return ("," + list + ",").find("," + entry + ",") != std::string::npos;
}

/// The process's group out of lines "number:controllers:group"; version 2 names no controllers.
std::string group_of(const fs::path& root, const std::string& controller, bool version_2) {
    for (const std::string& line : lines_of(root / "proc/self/cgroup")) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (version_2 ? controllers.empty() : has_entry(controllers, controller))
            return line.substr(second + 1);
    }
    return "";
}

/// Hierarchies that may count for the controller: version 2, and version 1 where they name it.
std::vector<Hierarchy> hierarchies(const std::string& controller, const fs::path& root) {
    std::vector<Hierarchy> found;
    for (const std::string& line : lines_of(root / "proc/self/mountinfo")) {
        // id parent device root mount_point options [fields] - type source options
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
        std::string skipped, type, options;
        Hierarchy one;
        left >> skipped >> skipped >> skipped >> one.mounted >> one.mount_point;
        right >> type >> skipped >> options;
        one.version_2 = type == "cgroup2";
        if (!one.version_2 && (type != "cgroup" || !has_entry(options, controller))) continue;
        one.group = group_of(root, controller, one.version_2);
        if (!one.group.empty()) found.push_back(one);
    }
    return found;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const fs::path& root) {
    std::vector<ControlGroup> groups;
    for (const Hierarchy& one : hierarchies(controller, root)) {
        // A container without a namespace for groups sees its whole path, but has its group
        // mounted.
        std::string path = one.group;
        if (one.mounted != "/" &&
            (path + "/").compare(0, one.mounted.size() + 1, one.mounted + "/") == 0)
            path.erase(0, one.mounted.size());
        fs::path folder = root / fs::path(one.mount_point).relative_path();
        groups.push_back({folder, one.version_2});
        for (const fs::path& name : fs::path(path).relative_path()) {
            folder /= name;
            groups.push_back({folder, one.version_2});
        }
    }
    return groups;
}

}  // namespace pagewheel
