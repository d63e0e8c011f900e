#include "text/stop_strings.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {

StopStrings::StopStrings(std::set<std::string> strings, bool include_in_output)
    : m_strings(std::move(strings)), m_include(include_in_output) {}

std::string StopStrings::feed(const std::string& text) {
    if (m_matched) return {};
    m_held += text;

    // The earliest match ends generation; of those at one place, the longest is cut out.
    size_t begin = std::string::npos, length = 0;
    for (const std::string& stop : m_strings) {
        const size_t found = m_held.find(stop);
        if (found == std::string::npos || found > begin) continue;
        if (found < begin || stop.size() > length) length = stop.size();
        begin = found;
    }
    m_matched = begin != std::string::npos;
    const size_t pass =
        m_matched ? begin + (m_include ? length : 0) : m_held.size() - undecided_bytes();
    std::string passed = m_held.substr(0, pass);
    m_held.erase(0, pass);
    if (m_matched) m_held.clear();
    return passed;
}

std::string StopStrings::flush() {
    return std::exchange(m_held, {});
}

size_t StopStrings::undecided_bytes() const {
    size_t undecided = 0;
    for (const std::string& stop : m_strings) {
        const size_t longest = std::min(stop.size() - 1, m_held.size());
        for (size_t length = longest; length > undecided; --length)
            if (m_held.compare(m_held.size() - length, length, stop, 0, length) == 0)
                undecided = length;
    }
    return undecided;
}

}  // namespace pagewheel
