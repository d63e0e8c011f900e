#include <utility>

#include "parsing/named_calls.hpp"

namespace pagewheel {
namespace {

const std::string header_end = "<|message|>", recipient = "to=", functions = "functions.";

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// A header is "assistant to=functions.f<|channel|>commentary json", or the recipient stands after
/// the channel.
class HarmonyMessage final : public CallReader {
public:
    explicit HarmonyMessage(std::string header) : m_header(std::move(header)) {}

    Step take(char byte, Events& out) override {
        if (m_is_body) return take_body(byte, out);
        m_header += byte;
        if (byte == '\n' || m_header.size() > max_header) return Step::REFUSED;
        return ends_with(m_header, header_end) ? begin_body() : Step::MORE;
    }

    void cut(Events& out) override { m_call.end(false, out); }
    bool in_call() const override { return m_call.has_begun(); }

private:
    static constexpr size_t max_header = 1000;

    Step begin_body() {
        m_is_body = true;
        const size_t to = m_header.find(recipient);
        if (to != std::string::npos) {
            const size_t begin = to + recipient.size();
            m_name = m_header.substr(begin, m_header.find_first_of(" <", begin) - begin);
            if (m_name.compare(0, functions.size(), functions) == 0)
                m_name.erase(0, functions.size());
            return Step::MORE;
        }
        const bool is_analysis = m_header.find("<|channel|>analysis") != std::string::npos;
        return is_analysis ? Step::REASONING : Step::DONE;
    }

    Step take_body(char byte, Events& out) {
        if (!m_call.has_begun()) {
            if (is_space(byte)) return Step::MORE;
            if (byte != '{' || m_name.empty()) return Step::REFUSED;
            m_call.begin(m_name, "", out);
        }
        return m_call.take(byte, out);
    }

    std::string m_header, m_name;
    bool m_is_body = false;
    NamedCall m_call;
};

}  // namespace

CallReaderMaker harmony_message(std::string header) {
    return [header](const ToolTypes&) { return std::make_unique<HarmonyMessage>(header); };
}

}  // namespace pagewheel
