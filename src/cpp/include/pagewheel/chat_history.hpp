// The messages of a conversation.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openvino/core/any.hpp"
#include "pagewheel/json_container.hpp"
#include "pagewheel/visibility.hpp"

namespace pagewheel {

/// Messages, tools and extra context for a chat template, kept as JSON. A message is an object;
/// InvalidArgument is thrown for what is none. One history is one thread's at a time.
class PAGEWHEEL_API ChatHistory {
public:
    /// One message: {{"role", "user"}, {"content", "Hello"}}.
    using Message = std::initializer_list<std::pair<std::string, ov::Any>>;

    ChatHistory();
    ChatHistory(std::initializer_list<Message> messages);
    explicit ChatHistory(const JsonContainer& messages);  ///< An array of messages.
    explicit ChatHistory(const std::vector<ov::AnyMap>& messages);
    /// From a JSON array of message objects: what the chat template asks of them.
    explicit ChatHistory(const std::string& messages_json);
    ChatHistory(const ChatHistory& other);
    ChatHistory(ChatHistory&&) noexcept;
    ChatHistory& operator=(const ChatHistory& other);
    ChatHistory& operator=(ChatHistory&&) noexcept;
    ~ChatHistory();

    void append(const std::string& role, const std::string& content);
    ChatHistory& push_back(Message message);
    ChatHistory& push_back(const JsonContainer& message);
    /// An ov::AnyMap sorts its keys, which a template may show.
    ChatHistory& push_back(const ov::AnyMap& message);
    void append_json(const std::string& message_json);  ///< One message.
    /// Removes the last message and returns it as JSON. Throws OutOfRange if there is none.
    std::string pop();
    void pop_back() { pop(); }
    void clear();
    size_t size() const;
    bool empty() const { return size() == 0; }

    // Views: what is changed in them is changed here. OutOfRange where there is no such message.
    JsonContainer operator[](size_t index) const;
    JsonContainer operator[](int index) const { return (*this)[size_t(index)]; }
    JsonContainer first() const { return (*this)[size_t(0)]; }
    JsonContainer last() const { return (*this)[size() - 1]; }
    JsonContainer get_messages() const;
    JsonContainer get_tools() const;          ///< An array; empty if none were set.
    JsonContainer get_extra_context() const;  ///< An object; empty if none was set.
    ChatHistory& set_tools(const JsonContainer& tools);
    ChatHistory& set_extra_context(const JsonContainer& extra_context);

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
