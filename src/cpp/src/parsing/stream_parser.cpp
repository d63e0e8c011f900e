#include "parsing/stream_parser.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {
namespace {

constexpr size_t max_space = 256;  // held back after a section
constexpr size_t max_reread = 256;

/// Sections, then what is dropped, then tags that open reasoning.
std::vector<std::string> content_markers(const MessageFormat& format,
                                         const std::vector<SectionMarker>& sections) {
    std::vector<std::string> markers;
    for (const SectionMarker& section : sections) markers.push_back(section.text);
    markers.insert(markers.end(), format.dropped.begin(), format.dropped.end());
    if (format.reasoning)
        markers.insert(markers.end(), format.reasoning->open.begin(), format.reasoning->open.end());
    return markers;
}

/// Tags that close it, then what is dropped, then tags that open it.
std::vector<std::string> reasoning_markers(const MessageFormat& format) {
    if (!format.reasoning) return {};
    std::vector<std::string> markers = format.reasoning->close;
    markers.insert(markers.end(), format.dropped.begin(), format.dropped.end());
    markers.insert(markers.end(), format.reasoning->open.begin(), format.reasoning->open.end());
    return markers;
}

bool is_blank(std::string_view text) {
    return std::all_of(text.begin(), text.end(), is_space);
}

}  // namespace

StreamParser::StreamParser(const MessageFormat& format, Options options)
    : m_format(format),
      m_sections(section_markers(format)),
      m_options(std::move(options)),
      m_content_markers(content_markers(format, m_sections)),
      m_reasoning_markers(reasoning_markers(format)) {
    if (!m_options.starts_in_reasoning || !format.reasoning) return;
    begin_reasoning();
    m_may_open = true;
}

StreamParser::~StreamParser() = default;

void StreamParser::feed(std::string_view text, Events& out) {
    while (!text.empty()) {
        size_t plain = 0;
        if (m_mode == Mode::CONTENT && !m_after_section)
            out.content(text.substr(0, plain = m_content_markers.skip(text)));
        else if (m_mode == Mode::REASONING && !m_may_open)
            out.reasoning(text.substr(0, plain = m_reasoning_markers.skip(text)));
        text.remove_prefix(plain);
        if (text.empty()) return;
        take(text.front(), out);
        text.remove_prefix(1);
    }
}

void StreamParser::finish(Events& out) {
    switch (m_mode) {
        case Mode::CONTENT:
            give_content(m_content_markers.flush(), out);
            break;
        case Mode::REASONING:
            give_reasoning(m_reasoning_markers.flush(), out);
            break;
        case Mode::SECTION: {
            const bool had_calls = m_marker_size == 0 || m_reader->in_call();
            m_reader->cut(out);
            if (!had_calls || !is_blank(m_held)) give_content(m_held, out);
            break;
        }
    }
    m_held.clear();
    m_space.clear();
    m_reader.reset();
    m_mode = Mode::CONTENT;
}

void StreamParser::take(char byte, Events& out) {
    switch (m_mode) {
        case Mode::CONTENT:
            return take_content(byte, out);
        case Mode::REASONING:
            return take_reasoning(byte, out);
        case Mode::SECTION:
            return take_section(byte, out);
    }
}

void StreamParser::take_content(char byte, Events& out) {
    std::string passed;
    size_t found = m_content_markers.take(byte, passed);
    give_content(passed, out);
    if (found == MarkerFinder::npos) return;
    if (found < m_sections.size()) return begin_section(m_sections[found], out);
    found -= m_sections.size();
    if (found < m_format.dropped.size()) return;
    found -= m_format.dropped.size();
    if (m_options.reasons_once && m_has_reasoned)
        give_content(m_format.reasoning->open[found], out);
    else
        begin_reasoning();
}

void StreamParser::take_reasoning(char byte, Events& out) {
    std::string passed;
    size_t found = m_reasoning_markers.take(byte, passed);
    give_reasoning(passed, out);
    if (found == MarkerFinder::npos) return;
    if (found < m_format.reasoning->close.size()) {
        m_mode = Mode::CONTENT;
        m_after_section = !m_options.reasons_once;
        return;
    }
    found -= m_format.reasoning->close.size();
    if (found < m_format.dropped.size()) return;
    found -= m_format.dropped.size();
    if (!std::exchange(m_may_open, false)) give_reasoning(m_format.reasoning->open[found], out);
}

void StreamParser::take_section(char byte, Events& out) {
    const size_t events_before = out.num_call_events();
    const CallReader::Step step = m_reader->take(byte, out);
    if (out.num_call_events() != events_before || m_reader->in_call()) {
        m_held.clear();
        m_space.clear();
        m_marker_size = 0;
    }
    const bool is_new_call_end = out.num_call_events() != events_before && !m_reader->in_call();
    switch (step) {
        case CallReader::Step::MORE:
            if (m_reader->in_call() || is_new_call_end) return;
            m_held += byte;
            if (m_held.size() > max_held) refuse_section(out);
            return;
        case CallReader::Step::FRAME:
            m_held.clear();
            return;
        case CallReader::Step::DONE:
            m_mode = Mode::CONTENT;
            m_after_section = true;
            break;
        case CallReader::Step::REASONING:
            begin_reasoning();
            break;
        case CallReader::Step::REFUSED:
            refuse_section(out);
            take(byte, out);
            return;
    }
    m_held.clear();
    m_reader.reset();
}

void StreamParser::begin_section(const SectionMarker& marker, Events& out) {
    m_mode = Mode::SECTION;
    m_reader = marker.make_reader(m_options.types);
    m_held = marker.text;
    m_marker_size = marker.text.size();
    if (!marker.is_read) return;
    m_held.clear();
    for (const char byte : marker.text) take(byte, out);
}

/// What is held is content. What is behind the marker may have another one in it; of long text that
/// is not looked for, so that the time stays linear.
void StreamParser::refuse_section(Events& out) {
    m_mode = Mode::CONTENT;
    m_reader.reset();
    const std::string held = std::exchange(m_held, {});
    const bool is_long = held.size() > max_reread + m_marker_size;
    const size_t certain = is_long ? held.size() : std::min(held.size(), m_marker_size);
    if (m_marker_size == 0) m_after_section = true;
    give_content(std::string_view(held).substr(0, certain), out);
    for (const char byte : held.substr(certain)) take(byte, out);
}

void StreamParser::begin_reasoning() {
    m_mode = Mode::REASONING;
    m_has_reasoned = true;
    m_space.clear();
    m_after_section = false;
    m_may_open = false;
}

void StreamParser::give_content(std::string_view text, Events& out) {
    if (text.empty()) return;
    if (m_after_section) {
        const bool may_be_between = is_blank(text) && m_space.size() + text.size() <= max_space;
        m_space += text;
        if (may_be_between) return;
        out.content(std::exchange(m_space, {}));
        m_after_section = false;
        return;
    }
    out.content(text);
}

void StreamParser::give_reasoning(std::string_view text, Events& out) {
    if (!is_blank(text)) m_may_open = false;
    out.reasoning(text);
}

}  // namespace pagewheel
