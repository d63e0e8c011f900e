// Memory that is kept from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pagewheel::kernels {

struct alignas(64) CacheLine {
    uint8_t bytes[64];
};

/// Numbers that are written before they are read, on cache lines of their own. The memory grows to
/// the largest use and stays.
template <class T>
class LineBuffer {
public:
    /// Room for `size` numbers, 64-byte aligned; what was there is lost.
    T* resize(size_t size) {
        const size_t lines = (size * sizeof(T) + sizeof(CacheLine) - 1) / sizeof(CacheLine);
        if (m_lines.size() < lines) {
            m_lines = {};  // nothing is kept, so nothing is there twice
            m_lines.resize(lines);
        }
        return data();
    }
    T* data() { return reinterpret_cast<T*>(m_lines.data()); }

private:
    std::vector<CacheLine> m_lines;
};

}  // namespace pagewheel::kernels
