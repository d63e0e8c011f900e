// Files that are mapped into the process, OpenVINO's weights among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pagewheel {

/// The read-only mappings of files that the process has when this is made. None where the system
/// does not tell (/proc/self/maps).
class MappedFiles {
public:
    MappedFiles();

    /// Takes the whole pages of [data, data + bytes) out of the process's memory if they are such a
    /// file's; whoever reads them again gets them from the file. OpenVINO unmaps a model's weights
    /// only when the last constant of the model is gone, so that what was read of them would stay
    /// resident.
    void release(const void* data, size_t bytes) const;

private:
    std::vector<std::pair<uintptr_t, uintptr_t>> m_ranges;  // [begin, end)
};

}  // namespace pagewheel
