#include "parsing/tagged_calls.hpp"

#include <optional>
#include <utility>

#include "parsing/json_scanner.hpp"
#include "parsing/tagged_value.hpp"

namespace pagewheel {
namespace {

/// Longer names and keys are none.
constexpr size_t max_name = 1000;

bool take_end(std::string& text, const std::string& end) {
    const bool has =
        text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
    if (has) text.erase(text.size() - end.size());
    return has;
}

class TaggedCalls final : public CallReader {
public:
    TaggedCalls(const TaggedCallsFormat& format, const ToolTypes& types)
        : m_format(format),
          m_types(types),
          m_place(format.opener.empty() ? Place::NAME : Place::BETWEEN),
          m_between({format.opener, format.section_close}),
          m_tags({format.key_open, format.call_close}),
          m_value_open({format.value_open}) {}

    Step take(char byte, Events& out) override {
        switch (m_place) {
            case Place::BETWEEN:
                return take_between(byte);
            case Place::NAME:
                return take_name(byte, out);
            case Place::TAGS:
                return take_tag(byte, out);
            case Place::KEY:
                return take_key(byte, out);
            case Place::VALUE_OPEN:
                return take_value_open(byte, out);
            case Place::VALUE:
                return take_value(byte, out);
        }
        return Step::REFUSED;
    }

    void cut(Events& out) override {
        if (m_has_begun) out.end_call(false);
        m_has_begun = false;
    }
    bool in_call() const override { return m_has_begun; }

private:
    enum class Place { BETWEEN, NAME, TAGS, KEY, VALUE_OPEN, VALUE };

    Step refuse(Events& out) {
        cut(out);
        return Step::REFUSED;
    }

    Step take_between(char byte) {
        if (is_space(byte) && !m_between.is_within()) return Step::MORE;
        switch (m_between.take(byte)) {
            case LiteralMatcher::Step::MORE:
                return Step::MORE;
            case LiteralMatcher::Step::NONE:
                return Step::REFUSED;
            case LiteralMatcher::Step::MATCH:
                if (m_between.match() == 1) return Step::DONE;
                m_name.clear();
                m_place = Place::NAME;
                return Step::MORE;
        }
        return Step::REFUSED;
    }

    Step take_name(char byte, Events& out) {
        if (m_name.size() > max_name) return Step::REFUSED;
        if (m_format.name_end.empty()) {
            const bool ends = is_space(byte) || byte == '<';
            if (ends && m_name.empty()) return is_space(byte) ? Step::MORE : Step::REFUSED;
            if (!ends) {
                m_name += byte;
                return Step::MORE;
            }
            return begin_call(out) ? take_tag(byte, out) : Step::REFUSED;
        }
        m_name += byte;
        if (!take_end(m_name, m_format.name_end)) return byte == '\n' ? Step::REFUSED : Step::MORE;
        return begin_call(out) ? Step::MORE : Step::REFUSED;
    }

    bool begin_call(Events& out) {
        if (m_name.empty() || m_name.front() == '{' || m_name.front() == '[') return false;
        out.begin_call(m_name);
        out.arguments("{");
        m_has_begun = true;
        m_is_first = true;
        m_place = Place::TAGS;
        return true;
    }

    Step take_tag(char byte, Events& out) {
        if (is_space(byte) && !m_tags.is_within()) return Step::MORE;
        switch (m_tags.take(byte)) {
            case LiteralMatcher::Step::MORE:
                return Step::MORE;
            case LiteralMatcher::Step::NONE:
                return refuse(out);
            case LiteralMatcher::Step::MATCH:
                break;
        }
        if (m_tags.match() == 0) {
            m_key.clear();
            m_place = Place::KEY;
            return Step::MORE;
        }
        out.arguments("}");
        out.end_call(true);
        m_has_begun = false;
        m_place = Place::BETWEEN;
        return m_format.section_close.empty() ? Step::DONE : Step::MORE;
    }

    Step take_key(char byte, Events& out) {
        m_key += byte;
        if (m_key.size() > max_name) return refuse(out);
        for (size_t i = 0; i < m_format.key_ends.size(); ++i)
            if (take_end(m_key, m_format.key_ends[i])) return begin_value(i, out);
        return Step::MORE;
    }

    Step begin_value(size_t key_end, Events& out) {
        std::string json = m_is_first ? "\"" : ", \"";
        for (const char byte : m_key) {
            if (byte == '"' || byte == '\\') json += '\\';
            append_string_byte(json, byte);
        }
        out.arguments(json + "\": ");
        m_is_first = false;
        m_value.emplace(type(key_end), m_format.value_close, m_format.trims_lines);
        m_place = m_format.value_open.empty() ? Place::VALUE : Place::VALUE_OPEN;
        return Step::MORE;
    }

    TaggedValue::Type type(size_t key_end) const {
        using Type = TaggedValue::Type;
        if (m_format.ends_tell_types) return key_end == 0 ? Type::TEXT : Type::OTHER;
        const auto function = m_types.by_function.find(m_name);
        if (function == m_types.by_function.end()) return Type::UNKNOWN;
        if (function->second.texts.count(m_key) != 0) return Type::TEXT;
        return function->second.others.count(m_key) != 0 ? Type::OTHER : Type::UNKNOWN;
    }

    Step take_value_open(char byte, Events& out) {
        if (is_space(byte) && !m_value_open.is_within()) return Step::MORE;
        const LiteralMatcher::Step step = m_value_open.take(byte);
        if (step == LiteralMatcher::Step::NONE) return refuse(out);
        if (step == LiteralMatcher::Step::MATCH) m_place = Place::VALUE;
        return Step::MORE;
    }

    Step take_value(char byte, Events& out) {
        std::string json;
        if (m_value->take(byte, json)) m_place = Place::TAGS;
        out.arguments(json);
        return Step::MORE;
    }

    const TaggedCallsFormat m_format;
    const ToolTypes& m_types;
    Place m_place;
    LiteralMatcher m_between, m_tags, m_value_open;
    std::string m_name, m_key;
    std::optional<TaggedValue> m_value;
    bool m_has_begun = false, m_is_first = true;
};

}  // namespace

CallReaderMaker tagged_calls(TaggedCallsFormat format) {
    return
        [format](const ToolTypes& types) { return std::make_unique<TaggedCalls>(format, types); };
}

ArgumentNotation tagged_arguments(const TaggedCallsFormat& format) {
    ArgumentNotation arguments;
    arguments.kind = ArgumentNotation::Kind::TAGGED;
    arguments.key_open = format.key_open;
    const std::string before_value = (format.value_open.empty() ? "" : "\n" + format.value_open) +
                                     (format.trims_lines ? "\n" : "");
    arguments.text_key_end = format.key_ends.front() + before_value;
    arguments.json_key_end = format.key_ends.back() + before_value;
    arguments.json_value_end = format.trims_lines ? "\n" : "";
    arguments.value_close = format.value_close;
    arguments.after_value = "\n";
    return arguments;
}

CallNotation tagged_notation(const TaggedCallsFormat& format, std::string trigger,
                             std::string open) {
    CallNotation call;
    call.trigger = std::move(trigger);
    call.before_name = std::move(open);
    call.after_name = format.name_end + "\n";
    call.arguments = tagged_arguments(format);
    call.after_arguments = format.call_close + "\n" + format.section_close;
    call.separator = "\n";
    call.has_one_call = call.may_repeat = true;
    return call;
}

}  // namespace pagewheel
