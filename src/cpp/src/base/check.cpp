#include "base/check.hpp"

#include <sstream>
#include <stdexcept>

#include "pagewheel/errors.hpp"

namespace pagewheel {
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

void fail_invariant(const MessagePart* parts, size_t count) {
    throw std::logic_error("pagewheel is broken here, please report it: " + joined(parts, count));
}

}  // namespace pagewheel
