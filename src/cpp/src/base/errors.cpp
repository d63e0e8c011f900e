// Here, so that the types are one in all libraries of a process.
#include "pagewheel/errors.hpp"

namespace pagewheel {

Error::Error(const std::string& message) : ov::Exception(message) {}

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
ModelNotFound::~ModelNotFound() = default;
OutOfRange::~OutOfRange() = default;
QueueFull::~QueueFull() = default;
PipelineFailed::~PipelineFailed() = default;

}  // namespace pagewheel
