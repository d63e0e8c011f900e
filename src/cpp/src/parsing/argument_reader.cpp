#include "parsing/argument_reader.hpp"

#include <optional>
#include <utility>

namespace pagewheel {
namespace {

constexpr size_t max_value = 1 << 16;  // longer values without quotes are texts
constexpr size_t max_key = 1000;       // of tagged arguments

bool may_begin_json(char byte) {
    return std::string_view("{[-0123456789tfnTFN \n\t\r").find(byte) != std::string_view::npos;
}

/// JSON of a value in the notation, with control characters escaped; empty where it is none.
/// `before` is read first, and `closing` behind the value.
std::string json_if(const ArgumentFormat& notation, std::string_view before, std::string_view value,
                    char closing) {
    ValueReader reader(notation);
    std::string json;
    for (const char byte : before) reader.take(byte, json);
    const size_t begin = json.size();
    for (const char byte : value) {
        const bool is_outer = reader.depth() == 1 && !reader.in_string();
        if (is_outer && (byte == ',' || byte == closing)) return {};  // another value would begin
        if (reader.take(byte, json) != ReadStep::MORE) return {};
    }
    const bool is_whole = reader.take(closing, json) == ReadStep::DONE;
    return is_whole ? json.substr(begin, json.size() - begin - 1) : "";
}

/// JSON of a value that is not empty, if it is JSON, a list or dict as Python writes it, or True,
/// False or None; else empty.
std::string json_of_value(std::string_view value) {
    if (trimmed(value).empty()) return {};
    const std::string json = json_if({}, "[", value, ']');
    const bool may_be_python = value.front() == '[' || value.front() == '{' || value == "True" ||
                               value == "False" || value == "None";
    if (!json.empty() || !may_be_python) return json;
    return json_if({ArgumentFormat::Kind::PYTHON}, "v=", value, ')');
}

/// A value without quotes, up to a tag, as JSON: as it comes if it is a text, at its end otherwise.
class TaggedValue {
public:
    enum class Type { TEXT, OTHER, UNKNOWN };

    /// `trims_lines`: a line break before the value and one after it are not part of it.
    TaggedValue(Type type, const std::string& close, bool trims_lines)
        : m_type(type),
          m_closers({close, trims_lines ? "\n" + close : close}),
          m_may_skip_line(trims_lines) {}

    /// Appends to `json`. True: the byte was the last of the closing tag.
    bool take(char byte, std::string& json) {
        if (std::exchange(m_may_skip_line, false) && byte == '\n') return false;
        std::string passed;
        const bool has_ended = m_closers.take(byte, passed) != MarkerFinder::npos;
        for (const char each : passed) append(each, json);
        if (has_ended) end(json);
        return has_ended;
    }

private:
    void append(char byte, std::string& json) {
        const bool is_first = m_value.empty();
        if (!m_is_text && (m_type == Type::TEXT || m_value.size() >= max_value ||
                           (m_type == Type::UNKNOWN && is_first && !may_begin_json(byte))))
            begin_text(json);
        if (m_is_text)
            append_text_byte(json, byte);
        else
            m_value += byte;
    }

    void begin_text(std::string& json) {
        m_is_text = true;
        json += '"';
        for (const char early : std::exchange(m_value, {})) append_text_byte(json, early);
    }

    void end(std::string& json) {
        if (!m_is_text) {
            const bool may_be_json = m_type != Type::TEXT && !m_value.empty();
            const std::string value = may_be_json ? json_of_value(m_value) : "";
            json += value;
            if (!value.empty()) return;
            begin_text(json);
        }
        json += '"';
    }

    const Type m_type;
    MarkerFinder m_closers;
    bool m_may_skip_line;
    bool m_is_text = false;  // is given out as one
    std::string m_value;     // of which it is not known whether it is a text
};

/// A tag for each argument. A value is a text where the parameter is known to be one. Else it is
/// JSON if it can be, or what Python writes for a list, a dict, true, false or null, or else a
/// text.
class TaggedArguments final : public ArgumentReader {
public:
    TaggedArguments(const ArgumentFormat& format, const std::string& closer,
                    const ParameterTypes* types)
        : m_format(format),
          m_types(types),
          m_tags({trimmed(format.key_open), closer}),
          m_key_ends({format.text_key_end, format.json_key_end}),
          m_value_open({trimmed(format.value_open)}) {}

    ReadStep take(char byte, std::string& json) override { return (this->*m_state)(byte, json); }

private:
    using State = ReadStep (TaggedArguments::*)(char byte, std::string& json);

    ReadStep go(State next) {
        m_state = next;
        return ReadStep::MORE;
    }

    ReadStep take_tag(char byte, std::string& json) {
        const ReadStep step = m_tags.take_behind_space(byte);
        if (step != ReadStep::DONE) return step;
        if (m_tags.match() == 1) {
            json += '}';
            return ReadStep::DONE;
        }
        m_key.clear();
        return go(&TaggedArguments::take_key);
    }

    ReadStep take_key(char byte, std::string& json) {
        const size_t end = m_key_ends.take(byte, m_key);
        if (m_key.size() >= max_key) return ReadStep::REFUSED;
        if (end != MarkerFinder::npos) begin_value(/*has_text_key_end=*/end == 0, json);
        return ReadStep::MORE;
    }

    void begin_value(bool has_text_key_end, std::string& json) {
        json += std::exchange(m_is_first, false) ? "\"" : ", \"";
        for (const char byte : m_key) append_text_byte(json, byte);
        json += "\": ";
        m_value.emplace(type(has_text_key_end), m_format.value_close, m_format.trims_lines);
        m_state = m_format.value_open.empty() ? &TaggedArguments::take_value
                                              : &TaggedArguments::take_value_open;
    }

    ReadStep take_value_open(char byte, std::string& /*json*/) {
        const ReadStep step = m_value_open.take_behind_space(byte);
        return step == ReadStep::DONE ? go(&TaggedArguments::take_value) : step;
    }

    ReadStep take_value(char byte, std::string& json) {
        if (m_value->take(byte, json)) m_state = &TaggedArguments::take_tag;
        return ReadStep::MORE;
    }

    TaggedValue::Type type(bool has_text_key_end) const {
        using Type = TaggedValue::Type;
        if (!m_format.json_key_end.empty()) return has_text_key_end ? Type::TEXT : Type::OTHER;
        if (!m_types || m_types->count(m_key) == 0) return Type::UNKNOWN;
        return m_types->at(m_key) ? Type::TEXT : Type::OTHER;
    }

    const ArgumentFormat& m_format;
    const ParameterTypes* m_types;
    State m_state = &TaggedArguments::take_tag;
    LiteralMatcher m_tags;
    MarkerFinder m_key_ends;
    LiteralMatcher m_value_open;
    std::string m_key;
    std::optional<TaggedValue> m_value;
    bool m_is_first = true;
};

}  // namespace

std::unique_ptr<ArgumentReader> make_argument_reader(const ArgumentFormat& format,
                                                     const std::string& closer,
                                                     const ParameterTypes* types) {
    switch (format.kind) {
        case ArgumentFormat::Kind::JSON:
        case ArgumentFormat::Kind::PYTHON:
        case ArgumentFormat::Kind::QUOTED:
            return std::make_unique<ValueReader>(format);
        case ArgumentFormat::Kind::TAGGED:
            return std::make_unique<TaggedArguments>(format, closer, types);
    }
    return nullptr;
}

}  // namespace pagewheel
