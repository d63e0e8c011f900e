#include "cache/cache_size.hpp"

#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "base/check.hpp"
#include "base/process.hpp"

namespace pagewheel {

namespace {

namespace fs = std::filesystem;

/// Nothing where there is no such file, or it has a word: "max".
std::optional<size_t> number_in(const fs::path& file) {
    size_t number = 0;
    if (std::ifstream(file) >> number) return number;
    return {};
}

/// Bytes of cached files that the system can take from the group and those below it.
size_t cached_files(const ControlGroup& group) {
    const std::string prefix = group.version_2 ? "" : "total_";
    std::ifstream stat(group.folder / "memory.stat");
    size_t sum = 0, bytes = 0;
    for (std::string key; stat >> key >> bytes;)
        if (key == prefix + "inactive_file" || key == prefix + "active_file") sum += bytes;
    return sum;
}

/// What the group's limit leaves, if it has one.
std::optional<size_t> room_of(const ControlGroup& group) {
    const auto file = [&](const char* version_2, const char* version_1) {
        return number_in(group.folder / (group.version_2 ? version_2 : version_1));
    };
    const auto limit = file("memory.max", "memory.limit_in_bytes");
    const auto used = file("memory.current", "memory.usage_in_bytes");
    if (!limit || !used) return {};
    // A model's file that has just been read would else fill what the limit leaves.
    const size_t held = *used - std::min(*used, cached_files(group));
    return *limit - std::min(*limit, held);
}

}  // namespace

size_t available_memory(const fs::path& root) {
    size_t available = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE));
    std::ifstream meminfo(root / "proc/meminfo");
    for (std::string key, unit; meminfo >> key;) {
        size_t kilobytes = 0;
        if (key == "MemAvailable:" && meminfo >> kilobytes) available = kilobytes * 1024;
        std::getline(meminfo, unit);
    }
    for (const ControlGroup& group : control_groups("memory", root))
        if (const auto room = room_of(group)) available = std::min(available, *room);
    return available;
}

size_t choose_num_blocks(size_t block_bytes, size_t wanted_blocks, size_t wanted_bytes,
                         double fraction, size_t useful_blocks) {
    if (wanted_blocks != 0) return wanted_blocks;
    const size_t bytes =
        wanted_bytes != 0 ? wanted_bytes : size_t(double(available_memory()) * fraction);
    const size_t fitting = bytes / block_bytes;
    check_argument(
        fitting > 0, "the KV cache gets ", bytes, " bytes",
        wanted_bytes != 0 ? "" : concat(", memory_fraction ", fraction, " of those free"),
        "; one block needs ", block_bytes);
    return wanted_bytes != 0 ? fitting : std::min(fitting, useful_blocks);
}

}  // namespace pagewheel
