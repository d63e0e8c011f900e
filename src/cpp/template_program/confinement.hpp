// Limits that a process sets itself for good.
#pragma once

#include <cstddef>

namespace pagewheel {

/// From here on this process has `max_memory` bytes of address space and `max_seconds` of time. It
/// may read standard input and write standard output, and open, start or send nothing else.
/// Standard error and other open files are closed. It ends with its parent.
///
/// Throws std::system_error where the system refuses a limit or does not keep it.
void confine(size_t max_memory, unsigned max_seconds);

}  // namespace pagewheel
