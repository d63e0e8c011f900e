// What pagewheel throws.
#pragma once

#include <string>
#include <vector>

#include "openvino/core/except.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

// docs/stability.md says what each code means. Python and programs see the names as they are here.
#define PAGEWHEEL_ERROR_CODES(CODE) \
    CODE(invalid_parameter)         \
    CODE(context_too_long)          \
    CODE(out_of_range)              \
    CODE(invalid_state)             \
    CODE(cancelled)                 \
    CODE(queue_full)                \
    CODE(model_not_found)           \
    CODE(model_unsupported)         \
    CODE(file_invalid)              \
    CODE(conversion_failed)         \
    CODE(dependency_missing)        \
    CODE(chat_template_missing)     \
    CODE(chat_template_failed)      \
    CODE(grammar_invalid)           \
    CODE(grammar_failed)            \
    CODE(grammar_busy)              \
    CODE(grammar_library_missing)   \
    CODE(no_token_possible)         \
    CODE(output_unfinished)         \
    CODE(processor_failed)          \
    CODE(policy_failed)             \
    CODE(drafter_failed)            \
    CODE(step_failed)               \
    CODE(engine_failed)             \
    CODE(failed)

/// What went wrong, for programs: stable, while texts of errors are not.
enum class ErrorCode {
#define PAGEWHEEL_ERROR_CODE(code) code,
    PAGEWHEEL_ERROR_CODES(PAGEWHEEL_ERROR_CODE)
#undef PAGEWHEEL_ERROR_CODE
};

/// The enumerator's name.
PAGEWHEEL_API const char* to_string(ErrorCode code);
/// All of them, in their order.
PAGEWHEEL_API std::vector<ErrorCode> error_codes();

/// Every error that a call answers with: `catch (const ov::Exception&)`, `std::runtime_error` and
/// `std::exception` have it. what() is the message alone, without a place in the sources.
/// std::bad_alloc, and what a callback of the caller's throws, pass as they are. A defect of
/// pagewheel's own is a std::logic_error, which asks for a report.
class PAGEWHEEL_API Error : public ov::Exception {
public:
    explicit Error(const std::string& message, ErrorCode code = ErrorCode::failed,
                   std::string parameter = {});
    ~Error() override;

    ErrorCode code() const { return m_code; }
    /// The name of the argument, parameter or property that was refused; empty where none was.
    const std::string& parameter() const { return m_parameter; }

private:
    ErrorCode m_code;
    std::string m_parameter;
};

/// An argument, a config, a property or a file is not allowed. The message names it, its value and
/// what is allowed.
class PAGEWHEEL_API InvalidArgument : public Error {
public:
    explicit InvalidArgument(const std::string& message,
                             ErrorCode code = ErrorCode::invalid_parameter,
                             std::string parameter = {});
    ~InvalidArgument() override;
};

/// There is no such model folder, or it lacks a file.
class PAGEWHEEL_API ModelNotFound : public InvalidArgument {
public:
    explicit ModelNotFound(const std::string& message);
    ~ModelNotFound() override;
};

/// A token id is outside of the vocabulary, or a list is empty that something is taken from.
class PAGEWHEEL_API OutOfRange : public Error {
public:
    explicit OutOfRange(const std::string& message, std::string parameter = {});
    ~OutOfRange() override;
};

/// A request is refused because SchedulerConfig::max_queue others wait.
class PAGEWHEEL_API QueueFull : public Error {
public:
    explicit QueueFull(const std::string& message);
    ~QueueFull() override;
};

/// The pipeline has failed as a whole: every request of it has, and it takes no more. A step that
/// fails for its own requests alone is an Error, and others go on.
class PAGEWHEEL_API PipelineFailed : public Error {
public:
    explicit PipelineFailed(const std::string& message);
    ~PipelineFailed() override;
};

}  // namespace pagewheel
