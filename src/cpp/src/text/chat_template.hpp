// From a conversation to a prompt.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "base/process_mark.hpp"
#include "pagewheel/chat_history.hpp"
#include "pagewheel/tokenizer.hpp"
#include "text/chat_format.hpp"

namespace pagewheel {

/// A tokenizer's chat template and what renders it, for any thread. Everything but original()
/// throws in a child that fork() made.
class ChatTemplate {
public:
    /// `format` has the pieces of `source`, if it is made of pieces.
    ChatTemplate(std::string source, std::optional<ChatFormat> format, std::string bos,
                 std::string eos);

    /// By `other` where it is not empty. Throws as Tokenizer::apply_chat_template says.
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
