#include "base/control_groups.hpp"

#include <fstream>
#include <sstream>

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

/// Those that may count for the controller: of version 2, and of version 1 where they name it.
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
