// Checks whose message is built only when they fail.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace ov {
class Exception;
}

namespace pagewheel {

enum class ErrorCode;  // pagewheel/errors.hpp, which the kernels do not see

/// A part of a message that names the parameter which the error is about. The message has `text`,
/// which is the name unless another is given.
struct ParameterName {
    explicit ParameterName(std::string_view name) : name(name), text(name) {}
    ParameterName(std::string_view name, std::string_view text) : name(name), text(text) {}

    std::string_view name, text;
};

/// One part of a message: a value and how an ostream takes it. It refers to the value, which must
/// outlive it. A ParameterName and an ErrorCode also become the error's.
class MessagePart {
public:
    template <class T>
    MessagePart(const T& value)
        : m_value(&value), m_write([](std::ostream& out, const void* value) {
              out << *static_cast<const T*>(value);
          }) {}
    MessagePart(std::string_view text) : m_text(text) {}
    MessagePart(const std::string& text) : m_text(text) {}
    MessagePart(const char* text) : m_text(text) {}
    MessagePart(const ParameterName& parameter)
        : m_text(parameter.text), m_parameter(parameter.name) {}
    MessagePart(const ErrorCode& code) : m_code(&code) {}

    void write(std::ostream& out) const;
    std::string_view parameter() const { return m_parameter; }
    const ErrorCode* code() const { return m_code; }

private:
    const void* m_value = nullptr;
    void (*m_write)(std::ostream& out, const void* value) = nullptr;  // null: the part is m_text
    std::string_view m_text;
    std::string_view m_parameter;
    const ErrorCode* m_code = nullptr;
};

// What follows is split from the templates below so that a message costs its caller little code.
std::string joined(const MessagePart* parts, size_t count);
[[noreturn]] void fail_argument(const MessagePart* parts, size_t count);
[[noreturn]] void fail_file(const MessagePart* parts, size_t count);
[[noreturn]] void fail_invariant(const MessagePart* parts, size_t count);

template <class... Parts>
std::string concat(const Parts&... parts) {
    const MessagePart all[] = {parts...};
    return joined(all, sizeof...(parts));
}

/// Refuses what a caller handed in: throws InvalidArgument (pagewheel/errors.hpp) with the parts
/// joined. Its parameter is the first ParameterName among them; its code is the first ErrorCode,
/// and invalid_parameter without one.
template <class... Parts>
[[noreturn]] void refuse_argument(const Parts&... parts) {
    const MessagePart all[] = {parts...};
    fail_argument(all, sizeof...(parts));
}

/// Calls refuse_argument() unless `ok`.
template <class... Parts>
void check_argument(bool ok, const Parts&... parts) {
    if (ok) return;
    const MessagePart all[] = {parts...};
    fail_argument(all, sizeof...(parts));
}

/// Does what check_argument() does, with the code file_invalid.
template <class... Parts>
void check_file(bool ok, const Parts&... parts) {
    if (ok) return;
    const MessagePart all[] = {parts...};
    fail_file(all, sizeof...(parts));
}

/// What an OpenVINO exception has to say to a user: its message without the list of OpenVINO's
/// source files that it passed through.
std::string reason(const ov::Exception& error);

/// Checks what must hold inside pagewheel: throws std::logic_error with the parts joined.
template <class... Parts>
void check_invariant(bool ok, const Parts&... parts) {
    if (ok) return;
    const MessagePart all[] = {parts...};
    fail_invariant(all, sizeof...(parts));
}

}  // namespace pagewheel
