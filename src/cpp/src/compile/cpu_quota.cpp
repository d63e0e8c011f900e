#include "compile/cpu_quota.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace pagewheel {
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
std::string group_of(const fs::path& root, bool version_2) {
    for (const std::string& line : lines_of(root / "proc/self/cgroup")) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (version_2 ? controllers.empty() : has_entry(controllers, "cpu"))
            return line.substr(second + 1);
    }
    return "";
}

/// Those that may limit the processor: of version 2, and of version 1 with the cpu controller.
std::vector<Hierarchy> hierarchies(const fs::path& root) {
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
        if (!one.version_2 && (type != "cgroup" || !has_entry(options, "cpu"))) continue;
        one.group = group_of(root, one.version_2);
        if (!one.group.empty()) found.push_back(one);
    }
    return found;
}

/// Of one group; both numbers in microseconds, in two files or, of version 2, in one.
std::optional<double> quota_of(const fs::path& folder, bool version_2) {
    double quota = 0, period = 0;
    if (version_2) {
        std::ifstream(folder / "cpu.max") >> quota >> period;  // "max" is no number: 0
    } else {
        std::ifstream(folder / "cpu.cfs_quota_us") >> quota;  // -1: none
        std::ifstream(folder / "cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return {};
    return quota / period;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
    std::optional<double> least;
    for (const Hierarchy& one : hierarchies(root)) {
        // A container without a namespace for groups sees its whole path, but has its group
        // mounted.
        std::string path = one.group;
        if (one.mounted != "/" &&
            (path + "/").compare(0, one.mounted.size() + 1, one.mounted + "/") == 0)
            path.erase(0, one.mounted.size());
        const fs::path top = root / fs::path(one.mount_point).relative_path();
        fs::path folder = top;
        // A group has at most what those above it have.
        const auto look = [&] {
            if (const auto quota = quota_of(folder, one.version_2))
                least = std::min(least.value_or(*quota), *quota);
        };
        look();
        for (const fs::path& name : fs::path(path).relative_path()) {
            folder /= name;
            look();
        }
    }
    return least;
}

size_t num_memory_nodes(const fs::path& root) {
    size_t nodes = 0;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", failed)) {
        const std::string name = entry.path().filename().string();
        nodes +=
            name.compare(0, 4, "node") == 0 && name.size() > 4 &&
            std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    }
    return std::max<size_t>(nodes, 1);
}

}  // namespace pagewheel
