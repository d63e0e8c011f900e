#include "text/chat_template.hpp"

#include <utility>

#include "pagewheel/errors.hpp"
#include "text/template_program.hpp"
#include "text/utf8.hpp"

namespace pagewheel {

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
