// Telling whether bytes are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pagewheel {

/// A 64-bit sum of bytes in the order they come, at several GB/s. Against accidents, not attackers;
/// how the bytes are cut into pieces matters.
class Checksum {
public:
    void add(const void* data, size_t count) {
        const auto* bytes = static_cast<const char*>(data);
        for (; count >= 8; count -= 8, bytes += 8) {
            uint64_t word;
            std::memcpy(&word, bytes, 8);
            mix(word);
        }
        uint64_t rest = count;
        if (count > 0) std::memcpy(&rest, bytes, count);
        mix(rest);
        mix(count);
    }
    uint64_t value() const { return m_value; }

private:
    void mix(uint64_t word) {
        m_value = (m_value ^ word) * 0x9E3779B97F4A7C15u;
        m_value ^= m_value >> 29;
    }

    uint64_t m_value = 0;
};

}  // namespace pagewheel
