// Plain chats rendered without Jinja.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pagewheel {

/// The pieces that conversion found in a chat template whose text for a message depends on its role
/// and content alone: `chat_format` of pagewheel.json.
class ChatFormat {
public:
    /// Null for JSON null. Throws nlohmann::json::exception for anything malformed.
    static std::optional<ChatFormat> from_json(const nlohmann::json& json);

    /// Whether conversion has compared chats of this form with the template: a system message or
    /// none, then the user and the assistant in turns.
    bool covers(const std::vector<std::pair<std::string, std::string>>& messages) const;

    /// Throws InvalidArgument for a role that the template was not seen to know.
    std::string render(const std::vector<std::pair<std::string, std::string>>& messages,
                       bool add_generation_prompt) const;

private:
    struct Wrap {
        std::string before, after;
    };
    std::string m_prefix;
    std::string m_default_system;  // put first when the first message is no system message
    std::map<std::string, Wrap> m_roles;
    std::string m_generation_prompt;
};

}  // namespace pagewheel
