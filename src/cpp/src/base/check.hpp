// Checks whose message is built only when they fail.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace pagewheel {

/// One part of a message: a value and how an ostream takes it. It refers to the value, which must
/// outlive it.
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

    void write(std::ostream& out) const;

private:
    const void* m_value = nullptr;
    void (*m_write)(std::ostream& out, const void* value) = nullptr;  // null: the part is m_text
    std::string_view m_text;
};

// What follows is split from the templates below so that a message costs its caller little code.
std::string joined(const MessagePart* parts, size_t count);
[[noreturn]] void fail_argument(const MessagePart* parts, size_t count);
[[noreturn]] void fail_invariant(const MessagePart* parts, size_t count);

template <class... Parts>
std::string concat(const Parts&... parts) {
    const MessagePart all[] = {parts...};
    return joined(all, sizeof...(parts));
}

/// For what a caller handed in: throws InvalidArgument (pagewheel/errors.hpp) with the parts
/// joined.
template <class... Parts>
[[noreturn]] void refuse_argument(const Parts&... parts) {
    const MessagePart all[] = {parts...};
    fail_argument(all, sizeof...(parts));
}

/// The same unless `ok`.
template <class... Parts>
void check_argument(bool ok, const Parts&... parts) {
    if (ok) return;
    const MessagePart all[] = {parts...};
    fail_argument(all, sizeof...(parts));
}

/// For what must hold inside pagewheel: throws std::logic_error with the parts joined.
template <class... Parts>
void check_invariant(bool ok, const Parts&... parts) {
    if (ok) return;
    const MessagePart all[] = {parts...};
    fail_invariant(all, sizeof...(parts));
}

}  // namespace pagewheel
