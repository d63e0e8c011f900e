// Checks whose message is built only when they fail.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace pagewheel {

template <class... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

/// For what a caller handed in: throws std::invalid_argument with the parts joined.
template <class... Parts>
void check_argument(bool ok, const Parts&... parts) {
    if (!ok) throw std::invalid_argument(concat(parts...));
}

/// For what must hold inside pagewheel: throws std::logic_error with the parts joined.
template <class... Parts>
void check_invariant(bool ok, const Parts&... parts) {
    if (!ok)
        throw std::logic_error(concat("pagewheel is broken here, please report it: ", parts...));
}

}  // namespace pagewheel
