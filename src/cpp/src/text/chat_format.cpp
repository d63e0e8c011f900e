#include "text/chat_format.hpp"

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "pagewheel/errors.hpp"

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

}  // namespace pagewheel
