// Tool calls whose name stands before the arguments, between markers.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "parsing/call_notation.hpp"
#include "parsing/call_reader.hpp"
#include "parsing/json_arguments.hpp"
#include "parsing/literal_matcher.hpp"
#include "parsing/loose_values.hpp"

namespace pagewheel {

/// The call that is being read: from its name to the end of its arguments.
class NamedCall {
public:
    bool has_begun() const { return m_has_begun; }
    void begin(std::string name, std::string id, Events& out) {
        out.begin_call(std::move(name), std::move(id));
        m_has_begun = true;
        m_arguments = {};
    }
    /// A byte of JSON: DONE where the call ends with it.
    CallReader::Step take(char byte, Events& out) {
        const JsonScanner::Step step = m_arguments.take(byte, out);
        if (step == JsonScanner::Step::MORE) return CallReader::Step::MORE;
        const bool is_whole = step == JsonScanner::Step::DONE;
        end(is_whole, out);
        return is_whole ? CallReader::Step::DONE : CallReader::Step::REFUSED;
    }
    void end(bool complete, Events& out) {
        if (m_has_begun) out.end_call(complete);
        m_has_begun = false;
    }

private:
    JsonArguments m_arguments;
    bool m_has_begun = false;
};

/// Mistral's, after [TOOL_CALLS]: f{...}, f[ARGS]{...} or f[CALL_ID]id[ARGS]{...}; or a list of
/// objects, as in json_calls.hpp.
CallReaderMaker mistral_calls();

/// DeepSeek's, after the marker that opens them: V3's with ```json, V3.1's without.
CallReaderMaker deepseek_calls();

/// gpt-oss's message, from its marker on: a call if it has a recipient, else reasoning or content.
/// `header` is what was read of the header with the marker.
CallReaderMaker harmony_message(std::string header);

/// call:f{a:1,b:QxQ} with a quote Q, up to `closer`.
CallReaderMaker gemma_calls(std::string quote, std::string closer);

inline CallNotation gemma_notation(std::string trigger, std::string quote, std::string closer) {
    CallNotation call;
    call.trigger = std::move(trigger);
    call.before_name = "call:";
    call.arguments.kind = ArgumentNotation::Kind::QUOTED;
    call.arguments.quote = std::move(quote);
    call.after_arguments = std::move(closer);
    call.has_one_call = call.may_repeat = true;
    return call;
}

}  // namespace pagewheel
