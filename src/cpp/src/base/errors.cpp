// The errors' members are here, so that their types are one in all libraries of a process.
#include "pagewheel/errors.hpp"

#include <utility>

namespace pagewheel {

const char* to_string(ErrorCode code) {
    switch (code) {
#define PAGEWHEEL_ERROR_CODE(name) \
    case ErrorCode::name:          \
        return #name;
        PAGEWHEEL_ERROR_CODES(PAGEWHEEL_ERROR_CODE)
#undef PAGEWHEEL_ERROR_CODE
    }
    return "failed";
}

std::vector<ErrorCode> error_codes() {
#define PAGEWHEEL_ERROR_CODE(name) ErrorCode::name,
    return {PAGEWHEEL_ERROR_CODES(PAGEWHEEL_ERROR_CODE)};
#undef PAGEWHEEL_ERROR_CODE
}

Error::Error(const std::string& message, ErrorCode code, std::string parameter)
    : ov::Exception(message), m_code(code), m_parameter(std::move(parameter)) {}
InvalidArgument::InvalidArgument(const std::string& message, ErrorCode code, std::string parameter)
    : Error(message, code, std::move(parameter)) {}
ModelNotFound::ModelNotFound(const std::string& message)
    : InvalidArgument(message, ErrorCode::model_not_found) {}
OutOfRange::OutOfRange(const std::string& message, std::string parameter)
    : Error(message, ErrorCode::out_of_range, std::move(parameter)) {}
QueueFull::QueueFull(const std::string& message) : Error(message, ErrorCode::queue_full) {}
PipelineFailed::PipelineFailed(const std::string& message)
    : Error(message, ErrorCode::engine_failed) {}

Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
ModelNotFound::~ModelNotFound() = default;
OutOfRange::~OutOfRange() = default;
QueueFull::~QueueFull() = default;
PipelineFailed::~PipelineFailed() = default;

}  // namespace pagewheel
