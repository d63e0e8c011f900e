// Memory that the system and control groups leave, read from folders that look as a system's do.
#include "cache/cache_size.hpp"

#include <gtest/gtest.h>

#include "support/system_folder.hpp"

namespace pagewheel {
namespace {

constexpr size_t gib = size_t(1) << 30;

class AvailableMemory : public SystemFolder {
protected:
    AvailableMemory() {
        write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\nHugePages: 0\n");
    }
    /// The container's group is the one that is mounted.
    void be_in_version_2() const {
        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    }
    void write_group(const std::string& file, size_t bytes) const {
        write("sys/fs/cgroup/" + file, std::to_string(bytes) + "\n");
    }
    size_t available() const { return available_memory(root()); }
};

TEST_F(AvailableMemory, OfThisSystemIsPlausible) {
    EXPECT_GT(available_memory(), size_t(1) << 20);
    EXPECT_LT(available_memory(), size_t(1) << 50);
}

TEST_F(AvailableMemory, IsTheSystemsWhereNoGroupHasALimit) {
    EXPECT_EQ(available(), 12 * gib);
    be_in_version_2();
    write("sys/fs/cgroup/memory.max", "max\n");
    write_group("memory.current", 5 * gib);
    EXPECT_EQ(available(), 12 * gib);
    write_group("memory.max", 64 * gib);
    EXPECT_EQ(available(), 12 * gib);
}

// 5 GiB of weights were just read from their file: the file's pages fill the rest of the group.
TEST_F(AvailableMemory, FilesThatTheSystemCachesAreFree) {
    be_in_version_2();
    write_group("memory.max", 8 * gib);
    write_group("memory.current", 8 * gib);
    EXPECT_EQ(available(), 0u);
    write("sys/fs/cgroup/memory.stat",
          "anon 5368709120\nfile 3221225472\ninactive_file 1073741824\nactive_file 2147483648\n");
    EXPECT_EQ(available(), 3 * gib);
}

// A service of systemd sees the whole tree of groups, and its limit at its own.
TEST_F(AvailableMemory, IsWhatTheNarrowestOfTheGroupsLeaves) {
    be_in_version_2();
    write("proc/self/cgroup", "0::/system.slice/server.service\n");
    write_group("system.slice/memory.max", 8 * gib);
    write_group("system.slice/memory.current", 2 * gib);
    EXPECT_EQ(available(), 6 * gib);
    write_group("system.slice/server.service/memory.max", 4 * gib);
    write_group("system.slice/server.service/memory.current", 1 * gib);
    EXPECT_EQ(available(), 3 * gib);
    write_group("system.slice/memory.current", 7 * gib);
    EXPECT_EQ(available(), 1 * gib);
}

TEST_F(AvailableMemory, OfAGroupOfVersionOne) {
    write("proc/self/cgroup", "4:memory:/jobs/7\n3:cpu:/\n");
    write("proc/self/mountinfo",
          "35 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    write_group("memory/memory.limit_in_bytes", 9223372036854771712u);  // what stands for none
    write_group("memory/memory.usage_in_bytes", 9 * gib);
    EXPECT_EQ(available(), 12 * gib);
    write_group("memory/jobs/7/memory.limit_in_bytes", 8 * gib);
    write_group("memory/jobs/7/memory.usage_in_bytes", 7 * gib);
    // Those without "total_" leave out what groups below this one have.
    write("sys/fs/cgroup/memory/jobs/7/memory.stat",
          "inactive_file 0\nactive_file 0\ntotal_inactive_file 1073741824\n"
          "total_active_file 1073741824\n");
    EXPECT_EQ(available(), 3 * gib);
}

TEST_F(AvailableMemory, IsNoneWhereAGroupHasMoreThanItsLimit) {
    be_in_version_2();
    write_group("memory.max", 1 * gib);
    write_group("memory.current", 2 * gib);
    EXPECT_EQ(available(), 0u);
}

}  // namespace
}  // namespace pagewheel
