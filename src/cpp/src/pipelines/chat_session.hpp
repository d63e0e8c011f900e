// The conversation between start_chat() and finish_chat().
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/process_mark.hpp"
#include "pagewheel/chat_history.hpp"

namespace pagewheel {

/// May be used by any thread. Throws in a child that fork() made.
class ChatSession {
public:
    class Exchange;

    void start(const std::string& system_message);
    void finish();
    bool is_open() const;

private:
    std::unique_lock<std::mutex> lock() const;
    void change(std::optional<ChatHistory> next);

    const ProcessMark m_process;
    mutable std::mutex m_mutex;  // guards what follows
    std::optional<ChatHistory> m_chat;
    uint64_t m_number = 0;   // of the chat; each start and finish makes it another
    uint64_t m_turn_of = 0;  // number of the chat of which a turn is being generated
};

/// A turn while it is generated. One that is not remembered is forgotten, and so is one during
/// which the chat was started or finished.
class ChatSession::Exchange {
public:
    /// Throws Error if the chat is at another. `session` must outlive the exchange.
    Exchange(ChatSession& session, const std::string& prompt);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    /// With the prompt.
    const ChatHistory& history() const { return m_history; }
    void remember(const std::string& answer);

private:
    ChatSession& m_session;
    ChatHistory m_history;
    uint64_t m_number;
};

}  // namespace pagewheel
