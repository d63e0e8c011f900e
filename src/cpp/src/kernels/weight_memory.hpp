// Memory for packed weights, which every step reads from end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pagewheel::kernels {

/// Hands out pieces of large regions on huge pages, where the system has them: with small ones a
/// step over 100 MB of weights takes 25,000 address translations. A region lives as long as one of
/// its pieces. Not for several threads at once.
class WeightMemory {
public:
    /// `bytes` bytes, 64-byte aligned. Throws std::bad_alloc.
    std::shared_ptr<uint8_t> allocate(size_t bytes);

private:
    std::shared_ptr<uint8_t> m_region;
    size_t m_used = 0, m_size = 0;
};

}  // namespace pagewheel::kernels
