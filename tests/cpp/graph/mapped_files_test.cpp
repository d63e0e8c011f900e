// Pages of mapped files that are given back.
#include "graph/compressed_weights.hpp"

#include <gtest/gtest.h>

#if defined(__linux__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace pagewheel {
namespace {

constexpr size_t size = 4 << 20;

/// A temporary file of bytes i % 251, mapped read-only and read from end to end.
class Mapping {
public:
    Mapping() {
        char name[] = "/tmp/pagewheel-mapped-XXXXXX";
        const int file = mkstemp(name);
        std::vector<uint8_t> bytes(size);
        for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t(i % 251);
        EXPECT_EQ(write(file, bytes.data(), size), ssize_t(size));
        m_data = static_cast<const uint8_t*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0));
        close(file);
        unlink(name);
        EXPECT_TRUE(is_whole());
    }
    ~Mapping() { munmap(const_cast<uint8_t*>(m_data), size); }

    const uint8_t* data() const { return m_data; }
    bool is_whole() const {
        for (size_t i = 0; i < size; ++i)
            if (m_data[i] != i % 251) return false;
        return true;
    }
    /// Bytes of it that are resident in this process.
    size_t resident() const {
        char address[32];
        std::snprintf(address, sizeof address, "%lx-", reinterpret_cast<unsigned long>(m_data));
        std::ifstream maps("/proc/self/smaps");
        bool mine = false;
        for (std::string line; std::getline(maps, line);) {
            if (line.compare(0, std::string(address).size(), address) == 0) mine = true;
            if (mine && line.compare(0, 4, "Rss:") == 0)
                return 1024 * std::strtoul(line.c_str() + 4, nullptr, 10);
        }
        return 0;
    }

private:
    const uint8_t* m_data;
};

TEST(MappedFiles, ReleasedPagesAreNotResidentAndReadTheSame) {
    const Mapping mapping;
    const MappedFiles files;
    ASSERT_EQ(mapping.resident(), size);
    files.release(mapping.data() + 100, size / 2);  // not at the borders of pages
    EXPECT_LE(mapping.resident(), size / 2 + 8192);
    EXPECT_TRUE(mapping.is_whole());
}

TEST(MappedFiles, OtherMemoryStaysAsItIs) {
    const MappedFiles files;
    const std::vector<uint8_t> heap(1 << 20, 7);
    files.release(heap.data(), heap.size());
    EXPECT_EQ(heap, std::vector<uint8_t>(1 << 20, 7));
}

}  // namespace
}  // namespace pagewheel
#endif
