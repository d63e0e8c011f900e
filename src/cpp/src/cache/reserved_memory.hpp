// Address space that becomes memory page by page.
#pragma once

#include <cstddef>

namespace pagewheel {

/// A range of zeroed bytes; the system commits memory as it is first written. Move-only.
class ReservedMemory {
public:
    ReservedMemory() = default;
    /// Throws Error if the system refuses.
    explicit ReservedMemory(size_t bytes);
    ReservedMemory(ReservedMemory&& other) noexcept;
    ReservedMemory& operator=(ReservedMemory&& other) noexcept;
    ~ReservedMemory();

    void* data() const { return m_data; }
    size_t size() const { return m_bytes; }
    /// Bytes [begin, end) are zero again and cost no memory until they are written, but for parts
    /// of pages at both ends, which stay as they are.
    void give_back(size_t begin, size_t end);

private:
    void* m_data = nullptr;
    size_t m_bytes = 0;
};

}  // namespace pagewheel
