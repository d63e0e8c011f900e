#include "cache/reserved_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

namespace pagewheel {

ReservedMemory::ReservedMemory(size_t bytes) : m_bytes(bytes) {
    if (bytes == 0) return;
    m_data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m_data == MAP_FAILED) {
        m_data = nullptr;
        throw Error(
            concat("cannot reserve ", bytes, " bytes of address space: ", std::strerror(errno)));
    }
}

ReservedMemory::ReservedMemory(ReservedMemory&& other) noexcept
    : m_data(std::exchange(other.m_data, nullptr)), m_bytes(std::exchange(other.m_bytes, 0)) {}

ReservedMemory& ReservedMemory::operator=(ReservedMemory&& other) noexcept {
    std::swap(m_data, other.m_data);
    std::swap(m_bytes, other.m_bytes);
    return *this;
}

ReservedMemory::~ReservedMemory() {
    if (m_data) munmap(m_data, m_bytes);
}

void ReservedMemory::give_back(size_t begin, size_t end) {
    const auto page = size_t(sysconf(_SC_PAGE_SIZE));
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) madvise(static_cast<char*>(m_data) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace pagewheel
