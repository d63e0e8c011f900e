#include "pipelines/pipeline_impl.hpp"

#include <utility>

#include "pagewheel/errors.hpp"

namespace pagewheel {

std::unique_lock<std::mutex> ChatSession::lock() const {
    m_process.check("pipeline");
    return std::unique_lock(m_mutex);
}

void ChatSession::change(std::optional<ChatHistory> next) {
    const auto lock = this->lock();
    m_chat.swap(next);  // the old one is destroyed without the lock
    ++m_number;
}

void ChatSession::start(const std::string& system_message) {
    ChatHistory chat;
    if (!system_message.empty()) chat.append("system", system_message);
    change(std::move(chat));
}

void ChatSession::finish() {
    change(std::nullopt);
}

bool ChatSession::is_open() const {
    const auto lock = this->lock();
    return m_chat.has_value();
}

ChatSession::Turn::Turn(ChatSession& session, const std::string& prompt) : m_session(session) {
    const auto lock = session.lock();
    if (!session.m_chat) throw Error("the chat was finished meanwhile", ErrorCode::invalid_state);
    if (session.m_turn_of == session.m_number)
        throw Error(
            "a turn of this chat is being generated; the next one can begin when it is over",
            ErrorCode::invalid_state);
    m_history = *session.m_chat;
    m_history.append("user", prompt);
    m_number = session.m_turn_of = session.m_number;
}

ChatSession::Turn::~Turn() {
    const std::lock_guard lock(m_session.m_mutex);
    if (m_session.m_turn_of == m_number) m_session.m_turn_of = 0;
}

void ChatSession::Turn::remember(const std::string& answer) {
    m_history.append("assistant", answer);
    const auto lock = m_session.lock();
    if (m_session.m_number == m_number) m_session.m_chat = std::move(m_history);
}

}  // namespace pagewheel
