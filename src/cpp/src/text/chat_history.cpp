#include "pagewheel/chat_history.hpp"

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/errors.hpp"
#include "text/json_value.hpp"

namespace pagewheel {
namespace {

using json = nlohmann::ordered_json;  // templates show keys in the order they were given

json parse(const std::string& text, const char* what) {
    json value = parse_ordered_json(text, what);
    check_argument(!value.is_discarded(), what, " is not JSON: ", text);
    return value;
}

const json& checked_message(const json& message) {
    if (!message.is_object())
        refuse_argument(ParameterName("messages", "a chat message"), " must be an object, got ",
                        json_text(message));
    return message;
}

const json& checked_messages(const json& messages) {
    check_argument(messages.is_array(), ParameterName("messages"), " must be an array, got ",
                   messages.type_name());
    for (const json& message : messages) checked_message(message);
    return messages;
}

JsonContainer container(json value) {
    return JsonContainer(std::make_unique<JsonContainer::Impl>(std::move(value)));
}

}  // namespace

struct ChatHistory::Impl {
    JsonContainer messages = JsonContainer::array();
    JsonContainer tools = JsonContainer::array();
    JsonContainer extra_context;

    void append(const json& message) {
        messages.impl().place().push_back(checked_message(message));
    }
};

ChatHistory::ChatHistory() : m_impl(std::make_unique<Impl>()) {}
ChatHistory::ChatHistory(std::initializer_list<Message> messages) : ChatHistory() {
    for (const Message& message : messages) push_back(message);
}
ChatHistory::ChatHistory(const JsonContainer& messages) : ChatHistory() {
    checked_messages(messages.impl().value());
    m_impl->messages = messages;
}
ChatHistory::ChatHistory(const std::vector<ov::AnyMap>& messages) : ChatHistory() {
    for (const ov::AnyMap& message : messages) push_back(message);
}
ChatHistory::ChatHistory(const std::string& messages_json) : ChatHistory() {
    set_messages_json(messages_json);
}
ChatHistory::ChatHistory(const ChatHistory& other)
    : m_impl(std::make_unique<Impl>(*other.m_impl)) {}
ChatHistory::ChatHistory(ChatHistory&&) noexcept = default;
ChatHistory& ChatHistory::operator=(const ChatHistory& other) {
    return *this = ChatHistory(other);  // views of what was here are of that still
}
ChatHistory& ChatHistory::operator=(ChatHistory&&) noexcept = default;
ChatHistory::~ChatHistory() = default;

void ChatHistory::append(const std::string& role, const std::string& content) {
    m_impl->append({{"role", role}, {"content", content}});
}
ChatHistory& ChatHistory::push_back(Message message) {
    return push_back(JsonContainer(message));
}
ChatHistory& ChatHistory::push_back(const JsonContainer& message) {
    m_impl->append(json(message.impl().value()));  // which may be one of these messages
    return *this;
}
ChatHistory& ChatHistory::push_back(const ov::AnyMap& message) {
    return push_back(JsonContainer(message));
}
void ChatHistory::append_json(const std::string& message_json) {
    m_impl->append(parse(message_json, "a chat message"));
}

std::string ChatHistory::pop() {
    if (empty()) throw OutOfRange("pop() from an empty chat history");
    json& messages = m_impl->messages.impl().place();
    const std::string last = json_text(messages.back());
    messages.erase(messages.size() - 1);
    return last;
}

void ChatHistory::clear() {
    m_impl->messages.clear();
}
size_t ChatHistory::size() const {
    return m_impl->messages.size();
}
JsonContainer ChatHistory::operator[](size_t index) const {
    if (index >= size())
        throw OutOfRange(concat("message ", index, " of a chat history that has ", size()),
                         "index");
    return m_impl->messages[index];
}
JsonContainer ChatHistory::get_messages() const {
    return m_impl->messages.share();
}
JsonContainer ChatHistory::get_tools() const {
    return m_impl->tools.share();
}
JsonContainer ChatHistory::get_extra_context() const {
    return m_impl->extra_context.share();
}

std::string ChatHistory::messages_json() const {
    return json_text(m_impl->messages.impl().value());
}
void ChatHistory::set_messages_json(const std::string& messages_json) {
    m_impl->messages = container(checked_messages(parse(messages_json, "the list of messages")));
}

std::string ChatHistory::tools_json() const {
    return json_text(m_impl->tools.impl().value());
}
ChatHistory& ChatHistory::set_tools(const JsonContainer& tools) {
    if (!tools.is_array())
        refuse_argument(ParameterName("tools"), " must be an array, got ", tools.to_json_string());
    m_impl->tools = tools;
    return *this;
}
void ChatHistory::set_tools_json(const std::string& tools_json) {
    set_tools(container(parse(tools_json, "the list of tools")));
}

std::string ChatHistory::extra_context_json() const {
    return json_text(m_impl->extra_context.impl().value());
}
ChatHistory& ChatHistory::set_extra_context(const JsonContainer& extra_context) {
    if (!extra_context.is_object())
        refuse_argument(ParameterName("extra_context", "extra context"), " must be an object, got ",
                        extra_context.to_json_string());
    m_impl->extra_context = extra_context;
    return *this;
}
void ChatHistory::set_extra_context_json(const std::string& extra_context_json) {
    set_extra_context(container(parse(extra_context_json, "the extra context")));
}

bool ChatHistory::as_plain(std::vector<std::pair<std::string, std::string>>& plain) const {
    if (!m_impl->tools.empty() || !m_impl->extra_context.empty()) return false;
    plain.clear();
    for (const json& message : m_impl->messages.impl().value()) {
        const auto role = message.find("role"), content = message.find("content");
        const bool is_plain = message.size() == 2 && role != message.end() && role->is_string() &&
                              content != message.end() && content->is_string();
        if (!is_plain) return false;
        plain.emplace_back(*role, *content);
    }
    return true;
}

}  // namespace pagewheel
