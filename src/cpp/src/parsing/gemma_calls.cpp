#include <utility>

#include "parsing/named_calls.hpp"

namespace pagewheel {
namespace {

class GemmaCalls final : public CallReader {
public:
    GemmaCalls(const std::string& quote, const std::string& closer)
        : m_closer({closer}), m_values('}', ':', quote) {}

    Step take(char byte, Events& out) override {
        switch (m_place) {
            case Place::PREFIX:
                if (is_space(byte) && !m_prefix.is_within()) return Step::MORE;
                return after(m_prefix.take(byte), Place::NAME);
            case Place::NAME:
                return take_name(byte, out);
            case Place::ARGUMENTS:
                return take_arguments(byte, out);
            case Place::CLOSER:
                if (is_space(byte) && !m_closer.is_within()) return Step::MORE;
                return after(m_closer.take(byte), Place::END);
            case Place::END:
                break;
        }
        return Step::REFUSED;
    }

    void cut(Events& out) override {
        if (std::exchange(m_has_begun, false)) out.end_call(false);
    }
    bool in_call() const override { return m_has_begun; }

private:
    enum class Place { PREFIX, NAME, ARGUMENTS, CLOSER, END };

    Step after(LiteralMatcher::Step step, Place next) {
        if (step == LiteralMatcher::Step::NONE) return Step::REFUSED;
        if (step == LiteralMatcher::Step::MORE) return Step::MORE;
        m_place = next;
        return next == Place::END ? Step::DONE : Step::MORE;
    }

    Step take_name(char byte, Events& out) {
        if (is_space(byte) || byte == '<') return Step::REFUSED;
        if (byte != '{') {
            m_name += byte;
            return Step::MORE;
        }
        if (m_name.empty()) return Step::REFUSED;
        out.begin_call(m_name);
        m_has_begun = true;
        m_place = Place::ARGUMENTS;
        return Step::MORE;
    }

    Step take_arguments(char byte, Events& out) {
        std::string json;
        const LooseValues::Step step = m_values.take(byte, json);
        if (step == LooseValues::Step::BAD) {
            cut(out);
            return Step::REFUSED;
        }
        out.arguments(json);
        if (step == LooseValues::Step::MORE) return Step::MORE;
        out.end_call(true);
        m_has_begun = false;
        m_place = Place::CLOSER;
        return Step::MORE;
    }

    Place m_place = Place::PREFIX;
    LiteralMatcher m_prefix{{"call:"}};
    LiteralMatcher m_closer;
    LooseValues m_values;
    std::string m_name;
    bool m_has_begun = false;
};

}  // namespace

CallReaderMaker gemma_calls(std::string quote, std::string closer) {
    return
        [quote, closer](const ToolTypes&) { return std::make_unique<GemmaCalls>(quote, closer); };
}

}  // namespace pagewheel
