#include "kernels/weight_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pagewheel::kernels {
namespace {

constexpr size_t huge_page = size_t(2) << 20, region_bytes = 8 * huge_page, line = 64;

size_t rounded(size_t bytes, size_t to) {
    return (bytes + to - 1) / to * to;
}

std::shared_ptr<uint8_t> make_region(size_t bytes) {
    void* memory = std::aligned_alloc(huge_page, bytes);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; small pages do as well
#endif
    return {static_cast<uint8_t*>(memory), [](uint8_t* p) { std::free(p); }};
}

}  // namespace

std::shared_ptr<uint8_t> WeightMemory::allocate(size_t bytes) {
    if (bytes > m_size - m_used) {
        // Pages that are never touched are never there, so a region that is not filled costs
        // little.
        m_size = std::max(region_bytes, rounded(bytes, huge_page));
        m_region = make_region(m_size);
        m_used = 0;
    }
    const std::shared_ptr<uint8_t> piece(m_region, m_region.get() + m_used);
    m_used = std::min(m_size, m_used + rounded(bytes, line));
    return piece;
}

}  // namespace pagewheel::kernels
