#include "parsing/json_calls.hpp"
#include "parsing/named_calls.hpp"

namespace pagewheel {
namespace {

class MistralCalls final : public CallReader {
public:
    Step take(char byte, Events& out) override {
        if (m_list) return m_list->take(byte, out);
        switch (m_place) {
            case Place::NAME:
                return take_name(byte, out);
            case Place::MARKER:
                return take_marker(byte);
            case Place::ID:
                if (byte == '[') return begin_marker(byte);
                m_id += byte;
                return Step::MORE;
            case Place::ARGUMENTS:
                return take_arguments(byte, out);
        }
        return Step::REFUSED;
    }

    void cut(Events& out) override {
        if (m_list) m_list->cut(out);
        m_call.end(false, out);
    }

    bool in_call() const override { return m_call.has_begun() || (m_list && m_list->in_call()); }

private:
    enum class Place { NAME, MARKER, ID, ARGUMENTS };

    Step take_name(char byte, Events& out) {
        if (is_space(byte) && m_name.empty()) return Step::MORE;
        if (m_name.empty() && (byte == '[' || byte == '{')) {
            m_list = std::make_unique<JsonCallsReader>(JsonCallsFormat());
            return m_list->take(byte, out);
        }
        if (byte == '[') return begin_marker(byte);
        if (byte == '{') return take_arguments(byte, out);
        if (byte == '\n') return Step::REFUSED;
        m_name += byte;
        return Step::MORE;
    }

    Step begin_marker(char byte) {
        m_place = Place::MARKER;
        return take_marker(byte);
    }

    Step take_marker(char byte) {
        switch (m_markers.take(byte)) {
            case LiteralMatcher::Step::MORE:
                return Step::MORE;
            case LiteralMatcher::Step::MATCH:
                m_place = m_markers.match() == 0 ? Place::ARGUMENTS : Place::ID;
                return Step::MORE;
            case LiteralMatcher::Step::NONE:
                return Step::REFUSED;
        }
        return Step::REFUSED;
    }

    Step take_arguments(char byte, Events& out) {
        m_place = Place::ARGUMENTS;
        if (!m_call.has_begun()) {
            if (is_space(byte)) return Step::MORE;
            if (byte != '{') return Step::REFUSED;
            m_call.begin(m_name, m_id, out);
        }
        return m_call.take(byte, out);
    }

    Place m_place = Place::NAME;
    std::string m_name, m_id;
    LiteralMatcher m_markers{{"[ARGS]", "[CALL_ID]"}};
    NamedCall m_call;
    std::unique_ptr<JsonCallsReader> m_list;
};

}  // namespace

CallReaderMaker mistral_calls() {
    return [](const ToolTypes&) { return std::make_unique<MistralCalls>(); };
}

}  // namespace pagewheel
