#include "text/chat_template.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "text/utf8.hpp"

namespace pagewheel {

std::optional<ChatFormat> ChatFormat::from_json(const nlohmann::json& json) {
    if (json.is_null()) return std::nullopt;
    const auto text = [](const nlohmann::json& object, const char* key) {
        const auto value = object.find(key);
        return value == object.end() || value->is_null() ? std::string()
                                                         : value->get<std::string>();
    };
    ChatFormat format;
    format.m_prefix = text(json, "prefix");
    format.m_default_system = text(json, "default_system");
    format.m_generation_prompt = text(json, "generation_prompt");
    for (const auto& [role, wrap] : json.at("roles").items())
        format.m_roles[role] = {text(wrap, "before"), text(wrap, "after")};
    return format;
}

bool ChatFormat::covers(const std::vector<std::pair<std::string, std::string>>& messages) const {
    const size_t first = !messages.empty() && messages.front().first == "system" ? 1 : 0;
    if (messages.size() == first || (first == 1 && m_roles.count("system") == 0)) return false;
    for (size_t i = first; i < messages.size(); ++i)
        if (messages[i].first != ((i - first) % 2 == 0 ? "user" : "assistant")) return false;
    return true;
}

std::string ChatFormat::render(const std::vector<std::pair<std::string, std::string>>& messages,
                               bool add_generation_prompt) const {
    std::string prompt = m_prefix;
    if (messages.empty() || messages.front().first != "system") prompt += m_default_system;
    for (const auto& [role, content] : messages) {
        const auto wrap = m_roles.find(role);
        check_argument(wrap != m_roles.end(), ErrorCode::chat_template_failed,
                       "the chat template has no role '", role, "'");
        prompt += wrap->second.before + content + wrap->second.after;
    }
    if (add_generation_prompt) prompt += m_generation_prompt;
    return prompt;
}

ChatTemplate::ChatTemplate(std::string source, std::optional<ChatFormat> format, std::string bos,
                           std::string eos)
    : m_original(std::move(source)),
      m_bos(std::move(bos)),
      m_eos(std::move(eos)),
      m_format(std::move(format)),
      m_source(m_original) {}

std::string ChatTemplate::render(const ChatHistory& history, bool add_generation_prompt,
                                 const std::string& other) const {
    const std::string source = other.empty() ? this->source() : other;
    if (source.empty())
        throw Error("the model has no chat template; give one, or plain text",
                    ErrorCode::chat_template_missing);
    check_utf8(source, {"chat_template", "the chat template"});
    const ChatTemplateRenderer renderer = this->renderer();
    std::vector<std::pair<std::string, std::string>> plain;
    if (!renderer && m_format && source == m_original && history.as_plain(plain) &&
        m_format->covers(plain))
        return m_format->render(plain, add_generation_prompt);
    const ChatTemplateInputs inputs{
        source, history.messages_json(), history.tools_json(), history.extra_context_json(), m_bos,
        m_eos,  add_generation_prompt};
    return renderer ? renderer(inputs) : render_by_program(inputs);
}

std::unique_lock<std::mutex> ChatTemplate::lock() const {
    m_process.check("tokenizer");
    return std::unique_lock(m_mutex);
}

std::string ChatTemplate::source() const {
    const auto locked = lock();
    return m_source;
}

void ChatTemplate::set_source(std::string source) {
    const auto locked = lock();
    m_source.swap(source);
}

ChatTemplateRenderer ChatTemplate::renderer() const {
    const auto locked = lock();
    return m_renderer;
}

void ChatTemplate::set_renderer(ChatTemplateRenderer renderer) {
    const auto locked = lock();
    m_renderer.swap(renderer);  // the old one goes with the parameter, after the lock
}

}  // namespace pagewheel
