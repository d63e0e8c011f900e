#include <utility>

#include "parsing/named_calls.hpp"

namespace pagewheel {
namespace {

const std::string call_begin = "<｜tool▁call▁begin｜>", separator = "<｜tool▁sep｜>",
                  call_end = "<｜tool▁call▁end｜>", calls_end = "<｜tool▁calls▁end｜>";

class DeepSeekCalls final : public CallReader {
public:
    Step take(char byte, Events& out) override {
        switch (m_place) {
            case Place::BETWEEN:
                return take_between(byte);
            case Place::FIRST:
                return take_first(byte);
            case Place::SECOND:
                return take_second(byte, out);
            case Place::FENCE:
                if (is_space(byte) && !m_fence.is_within()) return Step::MORE;
                return after(m_fence.take(byte), Place::ARGUMENTS);
            case Place::ARGUMENTS:
                return take_arguments(byte, out);
            case Place::END:
                if (is_space(byte) && !m_end.is_within()) return Step::MORE;
                return take_end(byte);
        }
        return Step::REFUSED;
    }

    void cut(Events& out) override { m_call.end(false, out); }
    bool in_call() const override { return m_call.has_begun(); }

private:
    enum class Place { BETWEEN, FIRST, SECOND, FENCE, ARGUMENTS, END };

    Step after(LiteralMatcher::Step step, Place next) {
        if (step == LiteralMatcher::Step::NONE) return Step::REFUSED;
        if (step == LiteralMatcher::Step::MATCH) m_place = next;
        return Step::MORE;
    }

    Step take_between(char byte) {
        if (is_space(byte) && !m_between.is_within()) return Step::MORE;
        const LiteralMatcher::Step step = m_between.take(byte);
        if (step == LiteralMatcher::Step::MATCH && m_between.match() == 1) return Step::DONE;
        m_name.clear();
        return after(step, Place::FIRST);
    }

    /// V3.1's name, or V3's word "function", up to the separator.
    Step take_first(char byte) {
        m_name += byte;
        const size_t size = m_name.size();
        if (size < separator.size() ||
            m_name.compare(size - separator.size(), separator.size(), separator) != 0)
            return Step::MORE;
        m_name.erase(size - separator.size());
        m_second.clear();
        m_place = Place::SECOND;
        return Step::MORE;
    }

    /// V3.1's arguments, or V3's name, which is a line.
    Step take_second(char byte, Events& out) {
        if (byte == '{' && m_second.empty()) return take_arguments(byte, out);
        if (byte == '\n' && m_second.empty()) return Step::MORE;
        if (byte != '\n') {
            m_second += byte;
            return Step::MORE;
        }
        m_name = std::exchange(m_second, {});
        m_place = Place::FENCE;
        return Step::MORE;
    }

    Step take_arguments(char byte, Events& out) {
        m_place = Place::ARGUMENTS;
        if (!m_call.has_begun()) {
            if (is_space(byte)) return Step::MORE;
            if (byte != '{' || m_name.empty()) return Step::REFUSED;
            m_call.begin(m_name, "", out);
        }
        const Step step = m_call.take(byte, out);
        if (step == Step::REFUSED) return Step::REFUSED;
        if (step == Step::DONE) m_place = Place::END;
        return Step::MORE;
    }

    Step take_end(char byte) {
        const LiteralMatcher::Step step = m_end.take(byte);
        if (step == LiteralMatcher::Step::MORE) return Step::MORE;
        if (step == LiteralMatcher::Step::NONE) return Step::REFUSED;
        const bool is_fence = m_end.match() == 0;
        m_place = is_fence ? Place::END : Place::BETWEEN;
        return Step::FRAME;
    }

    Place m_place = Place::BETWEEN;
    LiteralMatcher m_between{{call_begin, calls_end}};
    LiteralMatcher m_fence{{"```json"}};
    LiteralMatcher m_end{{"```", call_end}};
    std::string m_name, m_second;
    NamedCall m_call;
};

}  // namespace

CallReaderMaker deepseek_calls() {
    return [](const ToolTypes&) { return std::make_unique<DeepSeekCalls>(); };
}

}  // namespace pagewheel
