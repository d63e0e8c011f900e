#include "parsing/python_calls.hpp"

#include <utility>

namespace pagewheel {
CallReader::Step PythonCallsReader::take(char byte, Events& out) {
    switch (m_place) {
        case Place::LIST:
            return byte == '[' ? go(Place::CALL) : Step::REFUSED;
        case Place::CALL:
        case Place::NAME:
        case Place::PARENTHESIS:
            return take_name(byte);
        case Place::FIRST:
            return take_first(byte, out);
        case Place::ARGUMENTS:
            return take_arguments(byte, out);
        case Place::WRAPPED:
        case Place::AFTER:
            return take_between(byte);
        case Place::CLOSER:
            return take_closer(byte);
    }
    return Step::REFUSED;
}

CallReader::Step PythonCallsReader::take_name(char byte) {
    if (m_place == Place::CALL) {
        if (is_space(byte)) return Step::MORE;
        if (!begins_name(byte)) return Step::REFUSED;
        m_name = byte;
        return go(Place::NAME);
    }
    if (m_place == Place::NAME && (is_name_byte(byte) || byte == '.' || byte == '-')) {
        m_name += byte;
        return Step::MORE;
    }
    if (byte == ' ') return go(Place::PARENTHESIS);
    m_first.clear();
    return byte == '(' ? go(Place::FIRST) : Step::REFUSED;
}

/// A call is one when its first argument has a name, or it has none.
CallReader::Step PythonCallsReader::take_first(char byte, Events& out) {
    const std::string name =
        m_first.substr(std::min(m_first.find_first_not_of(" \n\t\r"), m_first.size()));
    const bool may_be_wrapper =
        byte == '(' && !name.empty() && m_name == "print" && !m_format.in_list && !m_is_wrapped;
    if (may_be_wrapper) {
        m_is_wrapped = true;
        m_name = name.substr(0, name.find_last_not_of(" \n\t\r") + 1);
        m_first.clear();
        return Step::MORE;
    }
    const bool is_whole = byte == '=' ? !name.empty() : byte == ')' && name.empty();
    if (!is_whole) {
        const bool fits = is_space(byte) ||
                          (name.empty() ? begins_name(byte) : is_name_byte(byte)) ||
                          (byte == '.' && m_name == "print");
        m_first += byte;
        return fits ? Step::MORE : Step::REFUSED;
    }
    m_has_begun = true;
    out.begin_call(m_name);
    m_values = std::make_unique<LooseValues>(')', '=');
    m_place = Place::ARGUMENTS;
    for (const char early : std::exchange(m_first, {}))
        if (take_arguments(early, out) == Step::REFUSED) return Step::REFUSED;
    return take_arguments(byte, out);
}

CallReader::Step PythonCallsReader::take_arguments(char byte, Events& out) {
    std::string json;
    const LooseValues::Step step = m_values->take(byte, json);
    if (step == LooseValues::Step::BAD) {
        cut(out);
        return Step::REFUSED;
    }
    out.arguments(json);
    if (step == LooseValues::Step::MORE) return Step::MORE;
    out.end_call(true);
    m_has_begun = false;
    return go(std::exchange(m_is_wrapped, false) ? Place::WRAPPED : Place::AFTER);
}

CallReader::Step PythonCallsReader::take_between(char byte) {
    if (m_place == Place::WRAPPED) {
        if (is_space(byte)) return Step::MORE;
        m_place = Place::AFTER;
        return byte == ')' ? Step::FRAME : Step::REFUSED;
    }
    if (m_format.in_list) {
        if (is_space(byte)) return Step::MORE;
        if (byte == ',') return go(Place::CALL);
        if (byte != ']') return Step::REFUSED;
        return m_closer.empty() ? Step::DONE : go(Place::CLOSER);
    }
    if (is_space(byte) || byte == ';') return Step::MORE;
    if (!begins_name(byte)) return take_closer(byte);
    m_place = Place::CALL;
    return take_name(byte);
}

CallReader::Step PythonCallsReader::take_closer(char byte) {
    m_place = Place::CLOSER;
    if (!m_closer.is_within() && is_space(byte)) return Step::MORE;
    return close_section(m_closer, byte);
}

CallReader::Step PythonCallsReader::go(Place place) {
    m_place = place;
    return Step::MORE;
}

void PythonCallsReader::cut(Events& out) {
    if (std::exchange(m_has_begun, false)) out.end_call(false);
}

}  // namespace pagewheel
