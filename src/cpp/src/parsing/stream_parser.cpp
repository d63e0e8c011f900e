#include "parsing/stream_parser.hpp"

#include <algorithm>
#include <utility>

namespace pagewheel {
namespace {

constexpr size_t max_space = 256;  // held back after a section
constexpr size_t max_reread = 256;

bool is_blank(std::string_view text) {
    return std::all_of(text.begin(), text.end(), is_space);
}

}  // namespace

void StreamParser::Markers::add(Sign sign, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) finder.add(text);
    signs.resize(signs.size() + texts.size(), sign);
}

StreamParser::StreamParser(const MessageFormat& format, Options options)
    : m_sections(section_markers(format)), m_options(std::move(options)) {
    const ReasoningTags tags = format.reasoning.value_or(ReasoningTags());
    for (const SectionMarker& section : m_sections) m_in_content.add(Sign::SECTION, {section.text});
    m_in_reasoning.add(Sign::CLOSES_REASONING, tags.close);
    for (Markers* each : {&m_in_content, &m_in_reasoning}) {
        each->add(Sign::DROPPED, format.dropped);
        each->add(Sign::OPENS_REASONING, tags.open);
    }
    if (!m_options.starts_in_reasoning || !format.reasoning) return;
    begin_reasoning();
    m_may_open = true;
}

StreamParser::~StreamParser() = default;

void StreamParser::feed(std::string_view text, Events& out) {
    while (!text.empty()) {
        const bool may_skip =
            m_mode == Mode::CONTENT ? !m_after_section : m_mode == Mode::REASONING && !m_may_open;
        const size_t plain = may_skip ? markers().finder.skip(text) : 0;
        give_text(text.substr(0, plain), out);
        text.remove_prefix(plain);
        if (text.empty()) return;
        take(text.front(), out);
        text.remove_prefix(1);
    }
}

void StreamParser::finish(Events& out) {
    if (m_mode == Mode::SECTION) {
        const bool had_calls = m_marker_size == 0 || m_reader->in_call();
        m_reader->cut(out);
        if (!had_calls || !is_blank(m_held)) give_text(m_held, out);
    } else {
        give_text(markers().finder.flush(), out);
    }
    m_held.clear();
    m_space.clear();
    m_reader.reset();
    m_mode = Mode::CONTENT;
}

void StreamParser::take(char byte, Events& out) {
    if (m_mode == Mode::SECTION) return take_section(byte, out);
    std::string passed;
    const size_t found = markers().finder.take(byte, passed);
    give_text(passed, out);
    if (found == MarkerFinder::npos) return;
    switch (markers().signs[found]) {
        case Sign::SECTION:
            return begin_section(m_sections[found], out);
        case Sign::DROPPED:
            return;
        case Sign::CLOSES_REASONING:
            m_mode = Mode::CONTENT;
            m_after_section = !m_options.reasons_once;
            return;
        case Sign::OPENS_REASONING:
            break;
    }
    const bool is_text = m_mode == Mode::REASONING ? !std::exchange(m_may_open, false)
                                                   : m_options.reasons_once && m_has_reasoned;
    if (is_text)
        give_text(markers().finder.text(found), out);
    else if (m_mode == Mode::CONTENT)
        begin_reasoning();
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
    give_text(std::string_view(held).substr(0, certain), out);
    for (const char byte : held.substr(certain)) take(byte, out);
}

void StreamParser::begin_reasoning() {
    m_mode = Mode::REASONING;
    m_has_reasoned = true;
    m_space.clear();
    m_after_section = false;
    m_may_open = false;
}

void StreamParser::give_text(std::string_view text, Events& out) {
    if (text.empty()) return;
    if (m_mode == Mode::REASONING) {
        if (!is_blank(text)) m_may_open = false;
        return out.reasoning(text);
    }
    if (!m_after_section) return out.content(text);
    const bool may_be_between = is_blank(text) && m_space.size() + text.size() <= max_space;
    m_space += text;
    if (may_be_between) return;
    out.content(std::exchange(m_space, {}));
    m_after_section = false;
}

}  // namespace pagewheel
