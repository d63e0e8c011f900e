// Messages to the user: the callback's, or stderr's.
#pragma once

#include <string>

#include "pagewheel/log.hpp"

namespace pagewheel {

/// `text` is without a newline. Throws nothing. Not under a lock: the callback may call everything.
void log(LogLevel level, const std::string& text) noexcept;

}  // namespace pagewheel
