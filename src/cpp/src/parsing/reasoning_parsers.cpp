#include <utility>

#include "base/check.hpp"
#include "model/json_file.hpp"
#include "pagewheel/parsers.hpp"
#include "parsing/messages.hpp"
#include "parsing/stream_parser.hpp"

namespace pagewheel {
namespace {

/// A family with nothing but the tags.
Family family_of(const ReasoningOptions& options) {
    check_argument(!options.close_tag.empty(), "close_tag is empty; allowed: any other text");
    check_argument(!options.open_tag.empty() || !options.expect_open_tag,
                   "open_tag is empty; allowed with expect_open_tag: any other text");
    Family family;
    family.reasoning = ReasoningTags{{}, {options.close_tag}};
    if (!options.open_tag.empty()) family.reasoning->open = {options.open_tag};
    return family;
}

StreamParser::Options parse_options(const ReasoningOptions& options) {
    StreamParser::Options parse;
    parse.starts_in_reasoning = !options.expect_open_tag;
    parse.reasons_once = true;
    return parse;
}

ReasoningOptions without_open_tag() {
    ReasoningOptions options;
    options.expect_open_tag = false;
    return options;
}

}  // namespace

struct ReasoningParser::Impl {
    ReasoningOptions options;
    Family family = family_of(options);
};

ReasoningParser::ReasoningParser(ReasoningOptions options) : m_impl(new Impl{std::move(options)}) {}
ReasoningParser::~ReasoningParser() = default;

void ReasoningParser::parse(std::string& message_json) {
    nlohmann::ordered_json message = parsed_message(message_json);
    const std::string content = content_of(message);
    Events events;
    StreamParser parser(m_impl->family, parse_options(m_impl->options));
    parser.feed(content, events);
    parser.finish(events);
    message["reasoning_content"] = "";
    put_events(events.all(), message);
    if (m_impl->options.keep_original_content) message["content"] = content;
    message_json = json_text(message);
}

struct ReasoningIncrementalParser::Impl {
    explicit Impl(ReasoningOptions given) : options(std::move(given)), family(family_of(options)) {}

    /// Returns what passes of `text`, of which the events are.
    std::string put(const Events& events, const std::string& text, std::string& delta_json) const {
        nlohmann::ordered_json delta = parsed_message(delta_json);
        std::string content = DeltaWriter().put(events.all(), delta);
        delta_json = json_text(delta);
        return options.keep_original_content ? text : content;
    }

    const ReasoningOptions options;
    const Family family;
    std::optional<StreamParser> parser;
};

ReasoningIncrementalParser::ReasoningIncrementalParser(ReasoningOptions options)
    : m_impl(new Impl(std::move(options))) {
    reset();
}
ReasoningIncrementalParser::~ReasoningIncrementalParser() = default;

void ReasoningIncrementalParser::reset() {
    m_impl->parser.emplace(m_impl->family, parse_options(m_impl->options));
}

std::string ReasoningIncrementalParser::parse(
    std::string& delta_message_json, const std::string& delta_text,
    const std::optional<std::vector<int64_t>>& /*delta_tokens*/) {
    Events events;
    m_impl->parser->feed(delta_text, events);
    return m_impl->put(events, delta_text, delta_message_json);
}

std::string ReasoningIncrementalParser::finish(std::string& delta_message_json) {
    Events events;
    m_impl->parser->finish(events);
    return m_impl->put(events, "", delta_message_json);
}

DeepSeekR1ReasoningParser::DeepSeekR1ReasoningParser() : ReasoningParser(without_open_tag()) {}
DeepSeekR1ReasoningIncrementalParser::DeepSeekR1ReasoningIncrementalParser()
    : ReasoningIncrementalParser(without_open_tag()) {}

}  // namespace pagewheel
