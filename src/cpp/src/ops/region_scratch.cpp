#include "ops/region_scratch.hpp"

#include <utility>

namespace pagewheel {

std::unique_ptr<RegionScratch> RegionScratchPool::take() {
    const std::lock_guard lock(m_mutex);
    if (m_free.empty()) {
        m_free.reserve(m_made + 1);  // giving back must not throw
        ++m_made;
        return std::make_unique<RegionScratch>();
    }
    std::unique_ptr<RegionScratch> scratch = std::move(m_free.back());
    m_free.pop_back();
    return scratch;
}

void RegionScratchPool::give_back(std::unique_ptr<RegionScratch> scratch) {
    const std::lock_guard lock(m_mutex);
    m_free.push_back(std::move(scratch));
}

}  // namespace pagewheel
