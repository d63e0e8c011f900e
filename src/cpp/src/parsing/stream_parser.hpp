// A stream of text to events.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsing/bytes.hpp"
#include "parsing/call_reader.hpp"

namespace pagewheel {

/// Parses one text of a format, in whatever pieces it comes. It holds back only what may yet become
/// a marker or the beginning of a call, and of that at most max_held bytes. Its time is linear.
///
/// A call begins when its name and the beginning of its arguments were read. What looks like one
/// and is none is content. A call whose arguments are no JSON, or that the end of the text cuts
/// off, ends incomplete; what follows is content again. Space between sections and in the end is
/// dropped.
class StreamParser {
public:
    struct Options {
        ToolTypes types = {};
        bool starts_in_reasoning = false;  ///< the prompt had the opening tag
        bool reasons_once = false;         ///< later tags are content
    };
    static constexpr size_t max_held = 1 << 16;

    explicit StreamParser(const MessageFormat& format) : StreamParser(format, Options()) {}
    /// The format must outlive it.
    StreamParser(const MessageFormat& format, Options options);
    ~StreamParser();

    void feed(std::string_view text, Events& out);
    /// No more follows.
    void finish(Events& out);

private:
    enum class Mode { CONTENT, REASONING, SECTION };
    enum class Sign { SECTION, DROPPED, OPENS_REASONING, CLOSES_REASONING };
    /// What text is looked through for, and what each marker is.
    struct Markers {
        MarkerFinder finder;
        std::vector<Sign> signs;

        void add(Sign sign, const std::vector<std::string>& texts);
    };

    Markers& markers() { return m_mode == Mode::REASONING ? m_in_reasoning : m_in_content; }
    void take(char byte, Events& out);
    void take_section(char byte, Events& out);
    void begin_section(const SectionMarker& marker, Events& out);
    void refuse_section(Events& out);
    void begin_reasoning();
    void give_text(std::string_view text, Events& out);

    const std::vector<SectionMarker> m_sections;
    const Options m_options;
    Markers m_in_content, m_in_reasoning;  // sections first
    Mode m_mode = Mode::CONTENT;
    std::unique_ptr<CallReader> m_reader;
    std::string m_held;        // of the section, since its marker or its latest call
    size_t m_marker_size = 0;  // of what is held: the bytes that may not be looked at again
    bool m_has_reasoned = false;
    bool m_may_open = false;  // the reasoning that the prompt began may have a tag yet
    bool m_after_section = false;
    std::string m_space;  // after a section
};

}  // namespace pagewheel
