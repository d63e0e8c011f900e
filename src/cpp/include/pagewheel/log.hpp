// What pagewheel has to say besides results and errors.
#pragma once

#include <functional>
#include <string>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

enum class LogLevel {
    INFO,     ///< SchedulerConfig::statistics_interval; that a model is being converted
    WARNING,  ///< what of a model or of properties is left out; a cache below the model's context
};

/// One message, without a newline.
using LogCallback = std::function<void(LogLevel, const std::string&)>;

/// `callback` gets the messages of the process from now on; an empty one: they go to stderr, each
/// as a line, as they do at first.
///
/// It is called by whichever thread has something to say, by several at a time, and may call
/// everything, this too. A message that it throws at goes to stderr; so do those that come up
/// inside it on its own thread. A call under way may outlast its replacement. A child that fork()
/// made keeps it.
PAGEWHEEL_API void set_log_callback(LogCallback callback);

}  // namespace pagewheel
