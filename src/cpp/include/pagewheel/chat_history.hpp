// The messages of a conversation.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Messages, tools and extra context for a chat template, kept as JSON.
class PAGEWHEEL_API ChatHistory {
public:
    ChatHistory();
    /// From a JSON array of message objects: what the chat template asks of them.
    explicit ChatHistory(const std::string& messages_json);
    ChatHistory(const ChatHistory& other);
    ChatHistory(ChatHistory&&) noexcept;
    ChatHistory& operator=(const ChatHistory& other);
    ChatHistory& operator=(ChatHistory&&) noexcept;
    ~ChatHistory();

    void append(const std::string& role, const std::string& content);
    /// One message as a JSON object. Throws std::invalid_argument if it is none.
    void append_json(const std::string& message_json);
    /// Removes the last message and returns it as JSON. Throws std::out_of_range if there is none.
    std::string pop();
    void clear();
    size_t size() const;
    bool empty() const { return size() == 0; }

    std::string messages_json() const;
    void set_messages_json(const std::string& messages_json);
    std::string tools_json() const;  ///< A JSON array; "[]" if none were set.
    void set_tools_json(const std::string& tools_json);
    std::string extra_context_json() const;  ///< A JSON object; "{}" if none was set.
    void set_extra_context_json(const std::string& extra_context_json);

    /// Role and content of every message, if all of them are plain: a string each and no other key,
    /// no tools and no extra context. False leaves `plain` unspecified.
    bool as_plain(std::vector<std::pair<std::string, std::string>>& plain) const;

private:
    struct Impl;
    std::unique_ptr<Impl> m_impl;
};

}  // namespace pagewheel
