#include "parsing/call_reader.hpp"

#include <algorithm>
#include <utility>

#include "model/json_file.hpp"

namespace pagewheel {
namespace {

using Mark = ValueReader::Mark;

constexpr size_t max_name = 1000;  // longer names are none
constexpr size_t max_id_digits = 9;

/// The text of a JSON string; empty where it is none.
std::string unquoted(const std::string& json) {
    const nlohmann::json value = parse_json(json, "a tool call");
    return value.is_string() ? value.get<std::string>() : "";
}

/// One object: {"name": ..., "arguments": {...}}, or its parts in an object "function". Also known
/// are "parameters" for the arguments and a text "function" for the name. "id" may be there, and
/// other keys.
class ObjectCall final : public CallReader {
public:
    /// Strict: no other keys before the name and the arguments, which must be there.
    explicit ObjectCall(bool is_strict) : m_is_strict(is_strict) {}

    Step take(char byte, Events& out) override {
        const size_t depth = m_scanner.depth();
        std::string json;
        const Step step = m_scanner.take(byte, json);
        if (step != Step::REFUSED && take_scanned(byte, json, depth, out)) return step;
        cut(out);
        return Step::REFUSED;
    }

    void cut(Events& out) override {
        end_call(m_arguments_are_whole, out, m_has_told_id ? "" : m_id);
    }

private:
    enum class Part { KEY, NAME, ID, ARGUMENTS, OTHER };

    /// `json` is the byte as it goes on, and `depth` that of the place before it.
    bool take_scanned(char byte, const std::string& json, size_t depth, Events& out) {
        const Mark mark = m_scanner.mark();
        const bool begins = mark == Mark::BEGINS_KEY || mark == Mark::BEGINS_VALUE;
        if (begins && depth == m_base && !begin_part(byte, out)) return false;
        append(byte, json, out);
        if (mark != Mark::ENDS_KEY && mark != Mark::ENDS_VALUE) return true;
        if (m_scanner.depth() == m_base) {
            const bool is_good = mark == Mark::ENDS_VALUE || end_key();
            end_part();
            return is_good;
        }
        return m_scanner.depth() > m_base || --m_base > 0 || end_object(out);
    }

    bool begin_part(char byte, Events& out) {
        m_part = m_scanner.mark() == Mark::BEGINS_KEY ? Part::KEY : m_next;
        if (m_part == Part::NAME) {
            if (byte != '{' || !m_next_may_be_object) return byte == '"' && m_name.empty();
            ++m_base;
            m_part = Part::OTHER;
        } else if (m_part == Part::ARGUMENTS) {
            if (m_has_arguments) return false;
            m_has_arguments = byte == '{';
            if (byte == 'n') m_part = Part::OTHER;  // null
            if (m_has_arguments && !m_name.empty()) begin(out);
            return m_has_arguments || byte == 'n';
        } else if (m_part == Part::ID && byte != '"') {
            m_part = Part::OTHER;
        }
        return true;
    }

    bool end_key() {
        const std::string key = unquoted(std::exchange(m_text, {}));
        m_next_may_be_object = key == "function" && m_base == 1;
        if (key == "name" || key == "function")
            m_next = Part::NAME;
        else if (key == "arguments" || key == "parameters")
            m_next = Part::ARGUMENTS;
        else
            m_next = key == "id" ? Part::ID : Part::OTHER;
        return !m_is_strict || in_call() || m_next != Part::OTHER || key == "type";
    }

    void end_part() {
        if (m_part == Part::NAME) m_name = unquoted(std::exchange(m_text, {}));
        if (m_part == Part::ID) m_id = unquoted(std::exchange(m_text, {}));
        if (m_part == Part::ARGUMENTS) m_arguments_are_whole = true;
        m_part = Part::OTHER;
    }

    /// Ends the outermost object.
    bool end_object(Events& out) {
        if (m_name.empty() || (m_is_strict && !m_has_arguments)) return false;
        if (!in_call()) begin(out);
        if (!m_has_arguments) out.arguments("{}");
        m_arguments_are_whole = true;
        cut(out);
        return true;
    }

    void append(char byte, const std::string& json, Events& out) {
        if (m_part == Part::KEY || m_part == Part::NAME || m_part == Part::ID) m_text += byte;
        if (m_part != Part::ARGUMENTS) return;
        if (in_call())
            out.arguments(json);
        else
            m_early += json;
    }

    void begin(Events& out) {
        begin_call(m_name, m_id, out);
        out.arguments(std::exchange(m_early, {}));
        m_has_told_id = !m_id.empty();
    }

    const bool m_is_strict;
    ValueReader m_scanner;
    size_t m_base = 1;          // depth of the object with the name
    Part m_part = Part::OTHER;  // that is read
    Part m_next = Part::OTHER;  // what the latest key is of
    bool m_next_may_be_object = false;
    std::string m_text;   // of a key, name or id, with its quotes
    std::string m_early;  // arguments that came before the name
    std::string m_name, m_id;
    bool m_has_arguments = false, m_arguments_are_whole = false;
    bool m_has_told_id = false;
};

/// One call in Python with keyword arguments: f(a=1, b="x"). What has other arguments is no call.
class PythonCall final : public CallReader {
public:
    /// `may_be_wrapped`: the call may stand in print().
    PythonCall(const CallFormat& format, bool may_be_wrapped) : m_may_be_wrapped(may_be_wrapped) {
        m_arguments = make_argument_reader(format.arguments, {}, nullptr);
    }

    Step take(char byte, Events& out) override { return (this->*m_state)(byte, out); }

private:
    using State = Step (PythonCall::*)(char byte, Events& out);

    Step go(State next) {
        m_state = next;
        return Step::MORE;
    }

    Step take_name(char byte, Events& /*out*/) {
        const bool has_ended = !m_name.empty() && m_name.back() == ' ';
        const bool fits =
            m_name.empty() ? begins_name(byte) : is_name_byte(byte) || byte == '.' || byte == '-';
        if ((fits && !has_ended) || (byte == ' ' && !m_name.empty())) {
            if (!has_ended || byte != ' ') m_name += byte;
            return Step::MORE;
        }
        if (byte != '(' || m_name.empty()) return Step::REFUSED;
        m_name = trimmed(m_name);
        return go(&PythonCall::take_first);
    }

    /// A call is one when its first argument has a name, or it has none.
    Step take_first(char byte, Events& out) {
        const std::string first = trimmed(m_first);
        if (byte == '(' && !first.empty() && m_name == "print" && m_may_be_wrapped &&
            !std::exchange(m_is_wrapped, true)) {
            m_name = first;
            m_first.clear();
            return Step::MORE;
        }
        const bool has_begun = byte == '=' ? !first.empty() : byte == ')' && first.empty();
        if (!has_begun) {
            const bool fits = is_space(byte) ||
                              (first.empty() ? begins_name(byte) : is_name_byte(byte)) ||
                              (byte == '.' && m_name == "print");
            m_first += byte;
            return fits ? Step::MORE : Step::REFUSED;
        }
        begin_call(m_name, "", out);
        m_state = &PythonCall::take_arguments;
        for (const char early : m_first)
            if (take_argument(early, out) == Step::REFUSED) return Step::REFUSED;
        return take(byte, out);
    }

    Step take_arguments(char byte, Events& out) {
        const Step step = take_argument(byte, out);
        return step == Step::DONE && m_is_wrapped ? go(&PythonCall::take_wrapper) : step;
    }

    /// Behind a call in print().
    Step take_wrapper(char byte, Events& /*out*/) {
        if (is_space(byte)) return Step::MORE;
        return byte == ')' ? Step::DONE : Step::REFUSED;
    }

    const bool m_may_be_wrapped;
    State m_state = &PythonCall::take_name;
    std::string m_name;   // with a space where it has ended
    std::string m_first;  // what there is of the first argument's name, and spaces around it
    bool m_is_wrapped = false;
};

/// Calls that are objects or Python's, in a list or one after the other.
class CallList final : public CallReader {
public:
    explicit CallList(const CallFormat& format, bool is_marked)
        : m_format(format),
          m_is_marked(is_marked),
          m_is_list(trimmed(format.open) == "["),
          m_closer({closer_of(format)}),
          m_has_closer(!closer_of(format).empty()),
          m_may_repeat(format.is_object ? !m_is_list && format.close.rfind(']', 0) != 0 &&
                                              (!format.has_one_call || format.may_repeat)
                                        : !m_is_list) {}

    Step take(char byte, Events& out) override { return (this->*m_state)(byte, out); }
    void cut(Events& out) override {
        if (m_call) m_call->cut(out);
    }
    bool in_call() const override { return m_call && m_call->in_call(); }

private:
    using State = Step (CallList::*)(char byte, Events& out);

    static std::string closer_of(const CallFormat& format) {
        return trimmed(format.close.substr(format.close.rfind(']', 0) == 0 ? 1 : 0));
    }

    bool begins_call(char byte) const {
        return m_format.is_object ? byte == '{' : begins_name(byte);
    }

    Step take_before(char byte, Events& out) {
        if (is_space(byte)) return Step::MORE;
        if (byte == '[' && !m_in_list && (m_format.is_object || m_is_list)) {
            m_in_list = true;
            return Step::MORE;
        }
        if (!begins_call(byte)) return Step::REFUSED;
        if (m_format.is_object)
            m_call = std::make_unique<ObjectCall>(!m_is_marked);
        else
            m_call = std::make_unique<PythonCall>(m_format, !m_is_list);
        m_state = &CallList::take_call;
        return take(byte, out);
    }

    Step take_call(char byte, Events& out) {
        const Step step = m_call->take(byte, out);
        return step == Step::DONE ? after_call() : step;
    }

    Step after_call() {
        m_call.reset();
        m_state = m_in_list ? &CallList::take_after_in_list : &CallList::take_after;
        const bool is_over = !m_in_list && !m_has_closer && !m_may_repeat;
        return is_over ? Step::DONE : Step::FRAME;
    }

    Step take_after_in_list(char byte, Events& /*out*/) {
        if (byte == ',') m_state = &CallList::take_before;
        if (is_space(byte) || byte == ',') return Step::MORE;
        if (byte != ']') return Step::REFUSED;
        m_in_list = false;
        return after_call();
    }

    Step take_after(char byte, Events& out) {
        if (!m_closer.is_within()) {
            if (is_space(byte)) return Step::MORE;
            const bool separates = m_format.is_object ? !trimmed(m_format.separator).empty() &&
                                                            (byte == ';' || byte == ',')
                                                      : byte == ';';
            if (m_may_repeat && separates) {
                if (m_format.is_object) m_state = &CallList::take_before;
                return Step::MORE;
            }
            if (m_may_repeat && (begins_call(byte) || (m_format.is_object && byte == '[')))
                return take_before(byte, out);
        }
        return m_closer.take(byte);
    }

    const CallFormat& m_format;
    const bool m_is_marked, m_is_list;
    LiteralMatcher m_closer;
    const bool m_has_closer, m_may_repeat;
    State m_state = &CallList::take_before;
    bool m_in_list = false;
    std::unique_ptr<CallReader> m_call;
};

/// Calls whose name stands before the arguments, between literals.
class NamedCalls final : public CallReader {
public:
    NamedCalls(const CallFormat& format, const ToolTypes& types)
        : m_format(format), m_types(types) {}

    Step take(char byte, Events& out) override { return (this->*m_state)(byte, out); }

private:
    using State = Step (NamedCalls::*)(char byte, Events& out);

    Step go(State next) {
        m_state = next;
        return Step::MORE;
    }

    Step take_between(char byte, Events& /*out*/) {
        const Step step = m_between.take_behind_space(byte);
        if (step != Step::DONE || m_between.match() != 0) return step;
        m_name.clear();
        m_id.clear();
        return go(&NamedCalls::take_name);
    }

    Step take_name(char byte, Events& out) {
        const bool is_first = m_name.empty();
        if (is_first && is_space(byte) && m_before_name.empty()) return Step::MORE;
        const bool is_end = ends_name(byte);
        if (is_first && (is_end || byte == '{' || byte == '[')) return Step::REFUSED;
        if (is_end && m_after_name.empty()) {
            begin_arguments(out);
            return byte == '<' ? take_arguments(byte, out) : Step::MORE;
        }
        if (is_end) return take_behind_name(byte, out);
        if (byte == '{' && m_format.may_omit_after_name) {
            begin_arguments(out);
            return take_arguments(byte, out);
        }
        if (byte == '\n' || (m_has_braces && (is_space(byte) || byte == '<')) ||
            m_name.size() == max_name)
            return Step::REFUSED;
        m_name += byte;
        return Step::MORE;
    }

    bool ends_name(char byte) const {
        if (m_has_braces) return byte == '{';
        if (m_after_name.empty()) return is_space(byte) || byte == '<';
        const std::string& before_id = m_format.before_id;
        return byte == m_format.after_name.front() ||
               (!before_id.empty() && byte == before_id.front());
    }

    Step take_behind_name(char byte, Events& out) {
        const Step step = m_behind_name.take_behind_space(byte);
        if (step != Step::DONE) {
            m_state = &NamedCalls::take_behind_name;
            return step;
        }
        return m_behind_name.match() == 0 ? begin_arguments(out) : go(&NamedCalls::take_id);
    }

    Step take_id(char byte, Events& out) {
        if (byte == m_after_name.front()) return take_behind_name(byte, out);
        m_id += byte;
        return Step::MORE;
    }

    Step begin_arguments(Events& out) {
        if (!m_format.id_begin.empty() && !m_id.empty()) {
            const std::string number = trimmed(m_id);
            const bool is_number = !number.empty() && number.size() <= max_id_digits &&
                                   std::all_of(number.begin(), number.end(), is_digit);
            m_id = is_number ? m_format.id_begin + m_name + m_format.before_id + number : "";
        }
        const auto function = m_types.find(m_name);
        m_arguments = make_argument_reader(m_format.arguments, m_end,
                                           function == m_types.end() ? nullptr : &function->second);
        if (!m_is_json) begin_call(m_name, "", out);
        if (m_is_tagged) out.arguments("{");
        return go(&NamedCalls::take_arguments);
    }

    Step take_arguments(char byte, Events& out) {
        const Step step = take_object(byte, m_name, m_id, out);
        if (step != Step::DONE) return step;
        return m_is_tagged || m_end.empty() ? after_call() : go(&NamedCalls::take_end);
    }

    Step take_end(char byte, Events& /*out*/) {
        const Step step = m_ends.take_behind_space(byte);
        return step == Step::DONE ? after_call() : step;
    }

    Step after_call() {
        m_state = &NamedCalls::take_between;
        return m_close.empty() ? Step::DONE : Step::FRAME;
    }

    const CallFormat& m_format;
    const ToolTypes& m_types;
    const bool m_is_json = m_format.arguments.kind == ArgumentFormat::Kind::JSON;
    const bool m_is_tagged = m_format.arguments.kind == ArgumentFormat::Kind::TAGGED;
    const bool m_has_braces = m_format.arguments.kind == ArgumentFormat::Kind::QUOTED;
    // The format's literals, around which there may be space.
    const std::string m_before_name = trimmed(m_format.before_name);
    const std::string m_after_name = trimmed(m_format.after_name);
    const std::string m_end = trimmed(m_format.after_arguments);
    const std::string m_close = trimmed(m_format.close);
    LiteralMatcher m_between{{m_before_name.empty() ? m_format.marker : m_before_name, m_close}};
    LiteralMatcher m_behind_name{{m_after_name, m_format.before_id}};
    LiteralMatcher m_ends{{m_end}};
    State m_state = m_before_name.empty() ? &NamedCalls::take_name : &NamedCalls::take_between;
    std::string m_name, m_id;
};

/// Reads gpt-oss's message: a call if it has a recipient, else reasoning or content. A header is
/// "assistant to=functions.f<|channel|>commentary json", or the recipient stands after the channel.
class HarmonyMessage final : public CallReader {
public:
    /// `header` is what was read of it with the marker.
    explicit HarmonyMessage(std::string header) : m_header(std::move(header)) {}

    Step take(char byte, Events& out) override {
        if (m_arguments) return take_object(byte, m_name, "", out);
        m_header += byte;
        if (byte == '\n' || m_header.size() > max_name) return Step::REFUSED;
        const std::string end = "<|message|>";
        const bool has_ended = m_header.size() >= end.size() &&
                               m_header.compare(m_header.size() - end.size(), end.size(), end) == 0;
        return has_ended ? begin_body() : Step::MORE;
    }

private:
    Step begin_body() {
        const std::string recipient = "to=", functions = "functions.";
        const size_t to = m_header.find(recipient);
        if (to == std::string::npos) {
            const bool is_analysis = m_header.find("<|channel|>analysis") != std::string::npos;
            return is_analysis ? Step::REASONING : Step::DONE;
        }
        m_arguments = make_argument_reader({}, {}, nullptr);
        const size_t begin = to + recipient.size();
        m_name = m_header.substr(begin, m_header.find_first_of(" <", begin) - begin);
        if (m_name.rfind(functions, 0) == 0) m_name.erase(0, functions.size());
        return Step::MORE;
    }

    std::string m_header, m_name;
};

/// Reads a section that may be of several formats: that of the first one that finds a call.
class EitherReader final : public CallReader {
public:
    explicit EitherReader(std::vector<std::unique_ptr<CallReader>> readers)
        : m_readers(std::move(readers)) {}

    Step take(char byte, Events& out) override {
        const size_t events_before = out.num_call_events();
        Step result = Step::REFUSED;
        for (auto reader = m_readers.begin(); reader != m_readers.end();) {
            const Step step = (*reader)->take(byte, out);
            if (out.num_call_events() != events_before) {
                auto chosen = std::move(*reader);
                m_readers.clear();
                m_readers.push_back(std::move(chosen));
                return step;
            }
            if (step == Step::REFUSED) {
                reader = m_readers.erase(reader);
                continue;
            }
            if (result != Step::DONE) result = step;
            ++reader;
        }
        return result;
    }

    void cut(Events& out) override {
        for (const auto& reader : m_readers) reader->cut(out);
    }
    bool in_call() const override { return m_readers.size() == 1 && m_readers[0]->in_call(); }

private:
    std::vector<std::unique_ptr<CallReader>> m_readers;
};

std::unique_ptr<CallReader> reader_of(const CallFormat& format, const ToolTypes& types,
                                      bool is_marked) {
    const bool is_list = format.is_object || format.arguments.kind == ArgumentFormat::Kind::PYTHON;
    if (is_list) return std::make_unique<CallList>(format, is_marked);
    return std::make_unique<NamedCalls>(format, types);
}

}  // namespace

CallReader::Step CallReader::take_object(char byte, const std::string& name, const std::string& id,
                                         Events& out) {
    if (!in_call()) {
        if (is_space(byte)) return Step::MORE;
        if (byte != '{' || name.empty()) return Step::REFUSED;
        begin_call(name, id, out);
    }
    return take_argument(byte, out);
}

CallReader::Step CallReader::take_argument(char byte, Events& out) {
    std::string json;
    const Step step = m_arguments->take(byte, json);
    if (step != Step::REFUSED) out.arguments(json);
    if (step != Step::MORE) end_call(step == Step::DONE, out);
    return step;
}

std::unique_ptr<CallReader> SectionMarker::make_reader(const ToolTypes& types) const {
    if (formats.empty()) return std::make_unique<HarmonyMessage>(is_read ? "" : text);
    std::vector<std::unique_ptr<CallReader>> readers;
    for (const CallFormat* format : formats) readers.push_back(reader_of(*format, types, !is_read));
    return std::make_unique<EitherReader>(std::move(readers));
}

std::vector<SectionMarker> section_markers(const MessageFormat& format) {
    // A text begins in the middle of the header that the prompt has begun.
    if (format.has_channels)
        return {{"<|start|>", {}}, {"<|channel|>", {}}, {format.calls[0].before_name, {}, true}};
    std::vector<SectionMarker> markers;
    const auto marker = [&](const std::string& text) -> SectionMarker& {
        for (SectionMarker& each : markers)
            if (each.text == text) return each;
        return markers.emplace_back(SectionMarker{text, {}});
    };
    const auto is_dropped = [&](const std::string& text) {
        return std::find(format.dropped.begin(), format.dropped.end(), text) !=
               format.dropped.end();
    };
    for (const CallFormat& calls : format.calls) {
        if (!calls.marker.empty() && !is_dropped(calls.marker)) {
            marker(calls.marker).formats.push_back(&calls);
            continue;
        }
        const auto openers = calls.is_object ? std::vector<std::string>{"{", "["}
                                             : std::vector<std::string>{calls.open};
        for (const std::string& opener : openers)
            if (marker(opener).formats.empty()) marker(opener) = {opener, {&calls}, true};
    }
    return markers;
}

std::unique_ptr<CallReader> make_unmarked_object_reader() {
    return std::make_unique<ObjectCall>(/*is_strict=*/true);
}

}  // namespace pagewheel
