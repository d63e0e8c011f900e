#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "parsing/messages.hpp"
#include "parsing/stream_parser.hpp"
#include "parsing/tool_types.hpp"

namespace pagewheel {
namespace {

StreamParser::Options parse_options(const ToolCallOptions& options) {
    StreamParser::Options parse;
    parse.types = tool_types(options.tools_json);
    parse.starts_in_reasoning = options.starts_in_reasoning;
    return parse;
}

}  // namespace

struct ToolCallParser::Impl {
    const Family& family;
    const StreamParser::Options options;
};

ToolCallParser::ToolCallParser(const std::string& family, const ToolCallOptions& options)
    : m_impl(new Impl{find_family(family), parse_options(options)}) {}
ToolCallParser::~ToolCallParser() = default;

bool ToolCallParser::needs_special_tokens() const {
    return m_impl->family.needs_special_tokens;
}

void ToolCallParser::parse(std::string& message_json) {
    nlohmann::ordered_json message = parsed_message(message_json);
    Events events;
    StreamParser parser(m_impl->family, m_impl->options);
    parser.feed(content_of(message), events);
    parser.finish(events);
    put_events(events.all(), message);
    message_json = json_text(message);
}

struct ToolCallIncrementalParser::Impl {
    const Family& family;
    const StreamParser::Options options;
    const bool stop_after_call;
    std::optional<StreamParser> parser = {};
    DeltaWriter writer = {};

    std::string put(Events&& parsed, std::string& delta_json) {
        nlohmann::ordered_json delta = parsed_message(delta_json);
        std::vector<ParseEvent> events = parsed.take_all();
        if (stop_after_call) cut_after_call(events);
        std::string content = writer.put(events, delta);
        delta_json = json_text(delta);
        return content;
    }
    /// One piece of text may hold the end of the first call and what follows.
    void cut_after_call(std::vector<ParseEvent>& events) const {
        if (writer.num_whole_calls() > 0) return events.clear();
        const auto end = std::find_if(events.begin(), events.end(), [](const ParseEvent& event) {
            return event.kind == ParseEvent::Kind::CALL_END && event.complete;
        });
        if (end != events.end()) events.erase(end + 1, events.end());
    }
};

ToolCallIncrementalParser::ToolCallIncrementalParser(const std::string& family,
                                                     const ToolCallOptions& options)
    : m_impl(new Impl{find_family(family), parse_options(options), options.stop_after_call}) {
    reset();
}
ToolCallIncrementalParser::~ToolCallIncrementalParser() = default;

bool ToolCallIncrementalParser::needs_special_tokens() const {
    return m_impl->family.needs_special_tokens;
}

void ToolCallIncrementalParser::reset() {
    m_impl->parser.emplace(m_impl->family, m_impl->options);
    m_impl->writer = {};
    set_status(StreamingStatus::RUNNING);
}

std::string ToolCallIncrementalParser::parse(
    std::string& delta_message_json, const std::string& delta_text,
    const std::optional<std::vector<int64_t>>& /*delta_tokens*/) {
    Events events;
    m_impl->parser->feed(delta_text, events);
    std::string content = m_impl->put(std::move(events), delta_message_json);
    if (m_impl->stop_after_call && m_impl->writer.num_whole_calls() > 0)
        set_status(StreamingStatus::TOOL_CALL_STOP);
    return content;
}

std::string ToolCallIncrementalParser::finish(std::string& delta_message_json) {
    Events events;
    m_impl->parser->finish(events);
    return m_impl->put(std::move(events), delta_message_json);
}

std::vector<ParserFamily> parser_families() {
    std::vector<ParserFamily> all;
    for (const Family& family : families())
        all.push_back({family.name, family.models, family.needs_special_tokens});
    return all;
}

std::optional<std::string> detect_parser(const std::string& chat_template) {
    const auto has = [&](const std::string& sign) {
        return chat_template.find(sign) != std::string::npos;
    };
    for (const Family& family : families())
        for (const std::vector<std::string>& signs : family.template_signs)
            if (std::all_of(signs.begin(), signs.end(), has)) return family.name;
    return std::nullopt;
}

}  // namespace pagewheel
