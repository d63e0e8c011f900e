// The control groups (Linux cgroups, versions 1 and 2) that this process is in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace pagewheel {

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
