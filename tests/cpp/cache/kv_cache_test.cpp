#include "cache/kv_cache.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace pagewheel {
namespace {

size_t resident_bytes() {
    size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * size_t(sysconf(_SC_PAGE_SIZE));
}

TEST(ReservedMemory, CostsMemoryOnlyWhereItIsWritten) {
    constexpr size_t reserved = size_t(64) << 30, touched = size_t(8) << 20;
    const size_t before = resident_bytes();
    ReservedMemory memory(reserved);
    auto* bytes = static_cast<char*>(memory.data());
    EXPECT_EQ(bytes[reserved - 1], 0);
    for (size_t i = 0; i < touched; i += 4096) bytes[i] = 1;
    const size_t grown = resident_bytes() - before;
    EXPECT_GE(grown, touched);
    EXPECT_LT(grown, touched + (size_t(8) << 20));
}

TEST(ReservedMemory, GivesBackWhatIsWithinARange) {
    constexpr size_t reserved = size_t(1) << 30, touched = size_t(16) << 20;
    ReservedMemory memory(reserved);
    auto* bytes = static_cast<char*>(memory.data());
    std::fill(bytes, bytes + touched, 1);
    const size_t before = resident_bytes();
    memory.give_back(100, touched - 100);
    EXPECT_LT(resident_bytes() + touched - (size_t(1) << 20), before);
    EXPECT_EQ(bytes[99], 1);  // shares a page with what is kept
    EXPECT_EQ(bytes[touched - 100], 1);
    EXPECT_EQ(bytes[touched / 2], 0);
}

TEST(ReservedMemory, MovesItsRange) {
    ReservedMemory memory(4096);
    void* data = memory.data();
    ReservedMemory moved = std::move(memory);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(memory.data(), nullptr);
}

}  // namespace
}  // namespace pagewheel
