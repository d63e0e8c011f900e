// How much memory the system would give this process.
#pragma once

#include <cstddef>
#include <filesystem>

namespace pagewheel {

/// What the system could give to this process now without swapping, in bytes: no more than the
/// limits of its control groups leave. Files that the system caches count as free.
/// `root` is the folder that /proc and what is mounted are looked for in.
size_t available_memory(const std::filesystem::path& root = "/");

}  // namespace pagewheel
