// Tool calls that are written as calls in Python: f(a=1, b="x").
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parsing/call_notation.hpp"
#include "parsing/call_reader.hpp"
#include "parsing/literal_matcher.hpp"
#include "parsing/loose_values.hpp"

namespace pagewheel {

struct PythonCallsFormat {
    bool in_list = true;  ///< [f(...), g(...)]; else one after the other, each alone or in print()
    std::vector<std::string> closers = {};  ///< One of them may end the section.
};

/// Calls with keyword arguments. What has others is no call.
class PythonCallsReader final : public CallReader {
public:
    explicit PythonCallsReader(PythonCallsFormat format)
        : m_format(std::move(format)),
          m_closer(m_format.closers),
          m_place(m_format.in_list ? Place::LIST : Place::CALL) {}

    Step take(char byte, Events& out) override;
    void cut(Events& out) override;
    bool in_call() const override { return m_has_begun; }

private:
    enum class Place { LIST, CALL, NAME, PARENTHESIS, FIRST, ARGUMENTS, WRAPPED, AFTER, CLOSER };

    Step take_name(char byte);
    Step take_first(char byte, Events& out);
    Step take_arguments(char byte, Events& out);
    Step take_between(char byte);
    Step take_closer(char byte);
    Step go(Place place);

    const PythonCallsFormat m_format;
    LiteralMatcher m_closer;
    Place m_place;
    std::string m_name;
    std::string m_first;  // what there is of the first argument's name, and spaces around it
    bool m_is_wrapped = false;
    bool m_has_begun = false;
    std::unique_ptr<LooseValues> m_values;
};

inline CallReaderMaker python_calls(PythonCallsFormat format = {}) {
    return [format](const ToolTypes&) { return std::make_unique<PythonCallsReader>(format); };
}

inline CallNotation python_notation(std::string open, std::string separator, std::string close) {
    CallNotation calls;
    calls.open = std::move(open);
    calls.after_name = "(";
    calls.arguments.kind = ArgumentNotation::Kind::PYTHON;
    calls.after_arguments = ")";
    calls.separator = std::move(separator);
    calls.close = std::move(close);
    return calls;
}

/// Where a list of calls may begin.
constexpr const char* python_call_in_list =
    R"(\[[ \n\t\r]*[A-Za-z_\u{80}-\u{10ffff}][^ (\[\])]* ?\()";

}  // namespace pagewheel
