#include "pagewheel/chat_history.hpp"

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "model/json_file.hpp"

namespace pagewheel {
namespace {

using json = nlohmann::ordered_json;  // templates show keys in the order they were given

json parse(const std::string& text, const char* what) {
    json value = parse_ordered_json(text, what);
    check_argument(!value.is_discarded(), what, " is not JSON: ", text);
    return value;
}

json checked_message(json message) {
    check_argument(message.is_object(), "a chat message must be an object, got ",
                   json_text(message));
    return message;
}

json checked_messages(const std::string& text) {
    json messages = parse(text, "the list of messages");
    check_argument(messages.is_array(), "messages must be an array, got ", messages.type_name());
    for (const json& message : messages) checked_message(message);
    return messages;
}

}  // namespace

struct ChatHistory::Impl {
    json messages = json::array();
    json tools = json::array();
    json extra_context = json::object();
};

ChatHistory::ChatHistory() : m_impl(std::make_unique<Impl>()) {}
ChatHistory::ChatHistory(const std::string& messages_json) : ChatHistory() {
    set_messages_json(messages_json);
}
ChatHistory::ChatHistory(const ChatHistory& other)
    : m_impl(std::make_unique<Impl>(*other.m_impl)) {}
ChatHistory::ChatHistory(ChatHistory&&) noexcept = default;
ChatHistory& ChatHistory::operator=(const ChatHistory& other) {
    *m_impl = *other.m_impl;
    return *this;
}
ChatHistory& ChatHistory::operator=(ChatHistory&&) noexcept = default;
ChatHistory::~ChatHistory() = default;

void ChatHistory::append(const std::string& role, const std::string& content) {
    m_impl->messages.push_back({{"role", role}, {"content", content}});
}

void ChatHistory::append_json(const std::string& message_json) {
    m_impl->messages.push_back(checked_message(parse(message_json, "a chat message")));
}

std::string ChatHistory::pop() {
    if (empty()) throw std::out_of_range("pop() from an empty chat history");
    const std::string last = json_text(m_impl->messages.back());
    m_impl->messages.erase(m_impl->messages.size() - 1);
    return last;
}

void ChatHistory::clear() {
    m_impl->messages = json::array();
}
size_t ChatHistory::size() const {
    return m_impl->messages.size();
}
std::string ChatHistory::messages_json() const {
    return json_text(m_impl->messages);
}
void ChatHistory::set_messages_json(const std::string& messages_json) {
    m_impl->messages = checked_messages(messages_json);
}

std::string ChatHistory::tools_json() const {
    return json_text(m_impl->tools);
}
void ChatHistory::set_tools_json(const std::string& tools_json) {
    json tools = parse(tools_json, "the list of tools");
    check_argument(tools.is_array(), "tools must be an array, got ", json_text(tools));
    m_impl->tools = std::move(tools);
}

std::string ChatHistory::extra_context_json() const {
    return json_text(m_impl->extra_context);
}
void ChatHistory::set_extra_context_json(const std::string& extra_context_json) {
    json context = parse(extra_context_json, "the extra context");
    check_argument(context.is_object(), "extra context must be an object, got ",
                   json_text(context));
    m_impl->extra_context = std::move(context);
}

bool ChatHistory::as_plain(std::vector<std::pair<std::string, std::string>>& plain) const {
    if (!m_impl->tools.empty() || !m_impl->extra_context.empty()) return false;
    plain.clear();
    for (const json& message : m_impl->messages) {
        const auto role = message.find("role"), content = message.find("content");
        const bool is_plain = message.size() == 2 && role != message.end() && role->is_string() &&
                              content != message.end() && content->is_string();
        if (!is_plain) return false;
        plain.emplace_back(*role, *content);
    }
    return true;
}

}  // namespace pagewheel
