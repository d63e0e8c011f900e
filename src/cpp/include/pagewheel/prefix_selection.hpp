// Which of the cached prefixes are meant.
#pragma once

#include <cstdint>

namespace pagewheel {

/// By default all of them.
struct PrefixSelection {
    /// Of the file they are saved to; 0 is no limit. The most recently used ones go first.
    uint64_t max_bytes = 0;
    /// Whether those are meant too that requests with a cache_salt have computed.
    bool salted = true;
};

}  // namespace pagewheel
