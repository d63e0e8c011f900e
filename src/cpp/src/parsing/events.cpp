#include "parsing/events.hpp"

#include <utility>

namespace pagewheel {

void Events::begin_call(std::string name, std::string id) {
    ++m_num_call_events;
    m_all.push_back({ParseEvent::Kind::CALL_BEGIN, std::move(name), std::move(id)});
}

void Events::end_call(bool complete, std::string id) {
    ++m_num_call_events;
    m_all.push_back({ParseEvent::Kind::CALL_END, {}, std::move(id), complete});
}

std::vector<ParseEvent> Events::take_all() {
    return std::exchange(m_all, {});
}

void Events::add(ParseEvent::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (m_all.empty() || m_all.back().kind != kind) m_all.push_back({kind, {}});
    m_all.back().text += text;
}

}  // namespace pagewheel
