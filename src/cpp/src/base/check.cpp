// The errors' members are here, so that their types are one in all libraries of a process.
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

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

namespace {

/// `code` unless a part names another one.
[[noreturn]] void throw_refusal(ErrorCode code, const MessagePart* parts, size_t count) {
    std::string_view parameter;
    for (size_t i = count; i-- > 0;) {
        if (parts[i].code()) code = *parts[i].code();
        if (!parts[i].parameter().empty()) parameter = parts[i].parameter();
    }
    throw InvalidArgument(joined(parts, count), code, std::string(parameter));
}

}  // namespace

void MessagePart::write(std::ostream& out) const {
    if (m_write)
        m_write(out, m_value);
    else
        out << m_text;
}

std::string joined(const MessagePart* parts, size_t count) {
    std::ostringstream text;
    for (size_t i = 0; i < count; ++i) parts[i].write(text);
    return text.str();
}

void fail_argument(const MessagePart* parts, size_t count) {
    throw_refusal(ErrorCode::invalid_parameter, parts, count);
}

void fail_file(const MessagePart* parts, size_t count) {
    throw_refusal(ErrorCode::file_invalid, parts, count);
}

std::string reason(const ov::Exception& error) {
    std::istringstream lines(error.what());
    std::string text;
    for (std::string line; std::getline(lines, line);)
        if (!line.empty() && line.rfind("Exception from src/", 0) != 0)
            text += (text.empty() ? "" : " ") + line;
    return text;
}

void fail_invariant(const MessagePart* parts, size_t count) {
    throw std::logic_error("pagewheel is broken here, please report it: " + joined(parts, count));
}

}  // namespace pagewheel
