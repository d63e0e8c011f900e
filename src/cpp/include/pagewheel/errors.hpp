// What pagewheel throws.
#pragma once

#include <string>

#include "openvino/core/except.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Every error that a call answers with: `catch (const ov::Exception&)`, `std::runtime_error` and
/// `std::exception` have it. what() is the message alone, without a place in the sources.
/// std::bad_alloc, and what a callback of the caller's throws, pass as they are. A defect of
/// pagewheel's own is a std::logic_error, which asks for a report.
class PAGEWHEEL_API Error : public ov::Exception {
public:
    explicit Error(const std::string& message);
    ~Error() override;
};

/// An argument, a config, a property or a file is not allowed. The message names it, its value and
/// what is allowed.
class PAGEWHEEL_API InvalidArgument : public Error {
public:
    using Error::Error;
    ~InvalidArgument() override;
};

/// There is no such model folder, or it lacks a file.
class PAGEWHEEL_API ModelNotFound : public InvalidArgument {
public:
    using InvalidArgument::InvalidArgument;
    ~ModelNotFound() override;
};

/// A token id is outside of the vocabulary, or a list is empty that something is taken from.
class PAGEWHEEL_API OutOfRange : public Error {
public:
    using Error::Error;
    ~OutOfRange() override;
};

/// A request is refused because SchedulerConfig::max_queue others wait.
class PAGEWHEEL_API QueueFull : public Error {
public:
    using Error::Error;
    ~QueueFull() override;
};

/// The pipeline has failed as a whole: every request of it has, and it takes no more. A step that
/// fails for its own requests alone is an Error, and others go on.
class PAGEWHEEL_API PipelineFailed : public Error {
public:
    using Error::Error;
    ~PipelineFailed() override;
};

}  // namespace pagewheel
