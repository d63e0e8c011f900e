// From a conversation to a prompt.
#pragma once

#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/process.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/tokenizer.hpp"

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

/// The prompt, from a process of its own, which has ten seconds, 512 MB of memory and 16 million
/// characters. Called by every thread that renders; at most four processes run at once, other
/// threads wait for their turn.
///
/// Throws InvalidArgument that begins with "chat template" for whatever the template does
/// wrong, Error where the program is missing or may not limit itself, or was killed twice.
std::string render_by_program(const ChatTemplateInputs& inputs);

/// A tokenizer's chat template and what renders it, for any thread. Everything but original()
/// throws in a child that fork() made.
class ChatTemplate {
public:
    /// `format` has the pieces of `source`, if it is made of pieces.
    ChatTemplate(std::string source, std::optional<ChatFormat> format, std::string bos,
                 std::string eos);

    /// Renders `other` where it is not empty, else source(). Throws as
    /// Tokenizer::apply_chat_template says.
    std::string render(const ChatHistory& history, bool add_generation_prompt,
                       const std::string& other) const;

    const std::string& original() const { return m_original; }
    std::string source() const;
    void set_source(std::string source);
    void set_renderer(ChatTemplateRenderer renderer);

private:
    std::unique_lock<std::mutex> lock() const;
    ChatTemplateRenderer renderer() const;

    const ProcessMark m_process;
    const std::string m_original, m_bos, m_eos;
    const std::optional<ChatFormat> m_format;  // of m_original
    // What may change while other threads render. Copied under the mutex, never used under it: a
    // renderer takes its time, and Python's waits for the GIL.
    mutable std::mutex m_mutex;
    std::string m_source;
    ChatTemplateRenderer m_renderer;
};

}  // namespace pagewheel
