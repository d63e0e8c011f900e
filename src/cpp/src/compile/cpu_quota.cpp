#include "compile/cpu_quota.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/process.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

/// Both numbers in microseconds, in two files or, of version 2, in one.
std::optional<double> quota_of(const ControlGroup& group) {
    double quota = 0, period = 0;
    if (group.version_2) {
        std::ifstream(group.folder / "cpu.max") >> quota >> period;  // "max" is no number: 0
    } else {
        std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota;  // -1: none
        std::ifstream(group.folder / "cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return {};
    return quota / period;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
    std::optional<double> least;
    for (const ControlGroup& group : control_groups("cpu", root))
        if (const auto quota = quota_of(group)) least = std::min(least.value_or(*quota), *quota);
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
