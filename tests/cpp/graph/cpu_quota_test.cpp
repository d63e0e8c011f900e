// Quotas of control groups, read from folders that look as a system's do.
#include "graph/inference_threads.hpp"

#include <gtest/gtest.h>

#include "support/system_folder.hpp"

namespace pagewheel {
namespace {

namespace fs = std::filesystem;

class CpuQuota : public SystemFolder {
protected:
    std::optional<double> quota() const { return cpu_quota(root()); }
};

constexpr const char* version_2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

TEST_F(CpuQuota, IsNoneWhereNothingCanBeRead) {
    EXPECT_EQ(quota(), std::nullopt);
    write("proc/self/cgroup", "0::/\nnonsense\n\n:\n");
    write("proc/self/mountinfo", "\n - \nnonsense - cgroup2\n");
    EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, OfAContainerIsThatOfTheMountedGroup) {
    write("proc/self/cgroup", "0::/\n");
    write("proc/self/mountinfo", version_2);
    write("sys/fs/cgroup/cpu.max", "150000 100000\n");
    EXPECT_EQ(quota(), 1.5);
    write("sys/fs/cgroup/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, IsTheLeastOfTheGroupsAbove) {
    write("proc/self/cgroup", "0::/a.slice/b.scope\n");
    write("proc/self/mountinfo", version_2);
    write("sys/fs/cgroup/a.slice/cpu.max", "200000 100000\n");
    write("sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), 2.0);
    write("sys/fs/cgroup/a.slice/b.scope/cpu.max", "20000 40000\n");
    EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, OfVersionOneIsInTwoFiles) {
    write("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/jobs/7\n0::/\n");
    write("proc/self/mountinfo",
          "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
          "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
    write("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "-1\n");
    write("sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(quota(), std::nullopt);
    write("sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "250000\n");
    write("sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(quota(), 2.5);
}

// Docker's first version of groups: the path is the host's, what is mounted is the container's.
TEST_F(CpuQuota, OfAContainerThatSeesTheHostsPath) {
    write("proc/self/cgroup", "3:cpu:/docker/0123\n");
    write("proc/self/mountinfo",
          "32 24 0:28 /docker/0123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n");
    write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
    EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, NodesOfMemoryAreCounted) {
    EXPECT_EQ(num_memory_nodes(root()), 1u);
    for (const char* name : {"node0", "node1", "node12", "power", "node"})
        fs::create_directories(root() / "sys/devices/system/node" / name);
    EXPECT_EQ(num_memory_nodes(root()), 3u);
}

}  // namespace
}  // namespace pagewheel
