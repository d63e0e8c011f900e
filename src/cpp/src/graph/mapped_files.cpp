#include "graph/mapped_files.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace pagewheel {

MappedFiles::MappedFiles() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::string rights, offset, device, inode;
        fields >> std::hex >> begin >> dash >> end >> rights >> offset >> device >> inode;
        if (fields && inode != "0" && rights.compare(0, 3, "r--") == 0)
            m_ranges.emplace_back(begin, end);
    }
}

void MappedFiles::release(const void* data, size_t bytes) const {
#if defined(__linux__)
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE)), address = uintptr_t(data);
    const uintptr_t begin = (address + page - 1) / page * page;
    const uintptr_t end = (address + bytes) / page * page;
    const bool mapped = std::any_of(m_ranges.begin(), m_ranges.end(), [&](const auto& range) {
        return range.first <= begin && end <= range.second;
    });
    // A wish: what stays resident does no harm.
    if (mapped && begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#else
    (void)data;
    (void)bytes;
#endif
}

}  // namespace pagewheel
