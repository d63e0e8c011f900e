// Which of the cached prefixes are meant.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace pagewheel {

/// The default selects all of them.
struct PrefixSelection {
    /// The most bytes of the file they are saved to; 0 is no limit. The most recently used ones go
    /// first.
    uint64_t max_bytes = 0;
    /// Selects only those that requests with one of these values of cache_salt have computed; ""
    /// stands for requests without one.
    std::optional<std::set<std::string>> salts;
};

}  // namespace pagewheel
