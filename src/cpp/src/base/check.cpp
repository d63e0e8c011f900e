#include "base/check.hpp"

#include <sstream>
#include <stdexcept>

#include "pagewheel/errors.hpp"

namespace pagewheel {

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
    throw InvalidArgument(joined(parts, count));
}

void fail_invariant(const MessagePart* parts, size_t count) {
    throw std::logic_error("pagewheel is broken here, please report it: " + joined(parts, count));
}

}  // namespace pagewheel
