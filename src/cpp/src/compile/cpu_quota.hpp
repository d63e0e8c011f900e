// How much processor time the system gives this process.
#pragma once

#include <filesystem>
#include <optional>

namespace pagewheel {

/// The least quota, in processors, of the control groups (Linux cgroups, versions 1 and 2) that the
/// process is in: 1.5 is 150 ms of time in each 100 ms. Nothing where none is set or can be read.
/// `root` is the folder that /proc and /sys and what is mounted are looked for in.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Memory nodes of the machine; 1 where that cannot be read.
size_t num_memory_nodes(const std::filesystem::path& root = "/");

}  // namespace pagewheel
