#include "pagewheel/parsers.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "conversions.hpp"
#include "grammar_library.hpp"
#include "pagewheel/errors.hpp"
#include "pagewheel/tool_grammar.hpp"

namespace pagewheel::python {
namespace {

using Tokens = std::optional<std::vector<int64_t>>;

/// What the call makes of a dict's JSON takes the place of what the dict holds.
template <class Parse>
auto parse_dict(const py::dict& message, Parse&& parse) {
    std::string json = to_json(message);
    const auto put_back = [&] {
        const py::object parsed = from_json(json);
        message.attr("clear")();
        message.attr("update")(parsed);
    };
    if constexpr (std::is_void_v<decltype(parse(json))>) {
        parse(json);
        put_back();
    } else {
        auto result = parse(json);
        put_back();
        return result;
    }
}

/// Calls parse() of a Python subclass.
class PyParser : public Parser, public py::trampoline_self_life_support {
public:
    void parse(std::string& message_json) override {
        const Locked locked;
        const py::function method = py::get_override(static_cast<const Parser*>(this), "parse");
        if (!method) throw py::type_error("a Parser must define parse()");
        const py::object message = from_json(message_json);
        call(method, message);
        message_json = to_json(message);
    }
    bool needs_special_tokens() const override {
        PYBIND11_OVERRIDE(bool, Parser, needs_special_tokens);
    }
};

/// Calls the methods of a Python subclass.
class PyIncrementalParser : public IncrementalParser, public py::trampoline_self_life_support {
public:
    std::string parse(std::string& delta_message_json, const std::string& delta_text,
                      const Tokens& delta_tokens) override {
        const Locked locked;
        const py::function method = find("parse");
        if (!method) throw py::type_error("an IncrementalParser must define parse()");
        const py::object delta = from_json(delta_message_json);
        std::string text = to_text(call(method, delta, delta_text, delta_tokens));
        delta_message_json = to_json(delta);
        return text;
    }
    std::string finish(std::string& delta_message_json) override {
        const Locked locked;
        const py::function method = find("finish");
        if (!method) return {};
        const py::object delta = from_json(delta_message_json);
        std::string text = to_text(call(method, delta));
        delta_message_json = to_json(delta);
        return text;
    }
    void reset() override {
        const Locked locked;
        const py::function method = find("reset");
        if (method) call(method);
    }
    bool needs_special_tokens() const override {
        PYBIND11_OVERRIDE(bool, IncrementalParser, needs_special_tokens);
    }

private:
    py::function find(const char* name) const {
        return py::get_override(static_cast<const IncrementalParser*>(this), name);
    }
};

/// Calls write() of a Python subclass with a dict.
class PyTextParserStreamer : public TextParserStreamer, public py::trampoline_self_life_support {
public:
    using TextParserStreamer::TextParserStreamer;
    using TextParserStreamer::write;

    StreamingStatus write(const std::string& delta_message_json) override {
        const Locked locked;
        const py::function method =
            py::get_override(static_cast<const TextParserStreamer*>(this), "write");
        if (!method) throw py::type_error("a TextParserStreamer must define write()");
        return to_streaming_status(call(method, from_json(delta_message_json)));
    }
};

template <class Class>
void add_reasoning_init(Class& bound) {
    using Bound = typename Class::type;
    bound.def(py::init([](bool expect_open_tag, bool keep_original_content,
                          const std::string& open_tag, const std::string& close_tag) {
                  return std::make_shared<Bound>(ReasoningOptions{
                      expect_open_tag, keep_original_content, open_tag, close_tag});
              }),
              py::arg("expect_open_tag") = true, py::arg("keep_original_content") = true,
              py::arg("open_tag") = "<think>", py::arg("close_tag") = "</think>");
}

template <class Bound, class Base>
void bind_plain(py::module_& module, const char* name, const char* doc) {
    py::class_<Bound, Base, py::smart_holder>(module, name, doc).def(py::init<>());
}

void bind_incremental_parser(py::module_& module) {
    py::class_<IncrementalParser, PyIncrementalParser, py::smart_holder>(
        module, "IncrementalParser",
        R"(Parses one text as it comes. Subclass it and define
parse(self, delta_message: dict, delta_text: str, delta_tokens: list[int] | None) -> str; reset(self) and
finish(self, delta_message: dict) -> str may be defined too.)")
        .def(py::init<>())
        .def(
            "parse",
            [](IncrementalParser& self, const py::dict& delta, const std::string& text,
               const Tokens& tokens) {
                return parse_dict(
                    delta, [&](std::string& json) { return self.parse(json, text, tokens); });
            },
            py::arg("delta_message"), py::arg("delta_text"), py::arg("delta_tokens") = py::none(),
            "Puts what it finds in the next piece into the delta, a dict. Returns what of the text "
            "goes on.")
        .def(
            "finish",
            [](IncrementalParser& self, const py::dict& delta) {
                return parse_dict(delta, [&](std::string& json) { return self.finish(json); });
            },
            py::arg("delta_message"), "The same of what was held back, when no more follows.")
        .def("reset", &IncrementalParser::reset, "For the next text.")
        .def("needs_special_tokens", &IncrementalParser::needs_special_tokens,
             "Whether the text must be decoded with its special tokens.")
        .def("get_status", &IncrementalParser::get_status,
             "What the streamer answers after this piece.")
        .def("set_status", &IncrementalParser::set_status, py::arg("status"),
             "Sets what the streamer answers after this piece: STOP and the like end the text.");
}

void bind_reasoning_parsers(py::module_& module) {
    py::class_<ReasoningParser, Parser, py::smart_holder> whole(
        module, "ReasoningParser",
        R"(message["reasoning_content"]: the text between the first two tags, or to the end of the text.

expect_open_tag=False: the text begins within it, because the prompt has the opening tag.
keep_original_content=False takes the reasoning out of the content.)");
    add_reasoning_init(whole);
    py::class_<ReasoningIncrementalParser, IncrementalParser, py::smart_holder> incremental(
        module, "ReasoningIncrementalParser", "ReasoningParser, of a text as it comes.");
    add_reasoning_init(incremental);
    bind_plain<DeepSeekR1ReasoningParser, ReasoningParser>(
        module, "DeepSeekR1ReasoningParser", "ReasoningParser(expect_open_tag=False).");
    bind_plain<DeepSeekR1ReasoningIncrementalParser, ReasoningIncrementalParser>(
        module, "DeepSeekR1ReasoningIncrementalParser",
        "ReasoningIncrementalParser(expect_open_tag=False).");
    bind_plain<Phi4ReasoningParser, ReasoningParser>(module, "Phi4ReasoningParser",
                                                     "ReasoningParser().");
    bind_plain<Phi4ReasoningIncrementalParser, ReasoningIncrementalParser>(
        module, "Phi4ReasoningIncrementalParser", "ReasoningIncrementalParser().");
}

void bind_tool_parsers(py::module_& module) {
    bind_plain<Llama3JsonToolParser, Parser>(
        module, "Llama3JsonToolParser",
        R"(message["tool_calls"]: each JSON object with a name and "parameters" or "arguments", as a
dict. The content stays.)");
    bind_plain<Llama3PythonicToolParser, Parser>(
        module, "Llama3PythonicToolParser",
        R"(message["tool_calls"]: each call of [f(a=1), g()] as {"name": ..., "arguments": {...}}. The
content stays.)");
    py::class_<ToolCallParser, Parser, py::smart_holder>(
        module, "ToolCallParser",
        R"(Reasoning and tool calls of a family of models; parser_families() lists them.

"reasoning_content" and "tool_calls" are put into the message if the text has any, and "content" is the
rest. A call is {"id"?, "type": "function", "function": {"name", "arguments"}}; arguments are a str, as OpenAI
has it, which is a JSON object. Has the call "complete": False, then its arguments were cut off or are no
JSON, and end there.

`tools`, as a chat template gets them, say which parameters are texts, for families that write values without
quotes. `starts_in_reasoning`: the prompt ended with the tag that opens reasoning.)")
        .def(py::init(
                 [](const std::string& family, const py::object& tools, bool starts_in_reasoning) {
                     return std::make_shared<ToolCallParser>(
                         family, ToolCallOptions{to_json(tools), starts_in_reasoning, false});
                 }),
             py::arg("family"), py::kw_only(), py::arg("tools") = py::list(),
             py::arg("starts_in_reasoning") = false);
    py::class_<ToolCallIncrementalParser, IncrementalParser, py::smart_holder>(
        module, "ToolCallIncrementalParser",
        R"(ToolCallParser, of a text as it comes: "tool_calls" of a delta are pieces.

Each piece has the "index" of its call. The first one has the name; joined, the arguments are those of
ToolCallParser. With `stop_after_call` the status is TOOL_CALL_STOP after the first whole call.)")
        .def(py::init([](const std::string& family, const py::object& tools,
                         bool starts_in_reasoning, bool stop_after_call) {
                 return std::make_shared<ToolCallIncrementalParser>(
                     family, ToolCallOptions{to_json(tools), starts_in_reasoning, stop_after_call});
             }),
             py::arg("family"), py::kw_only(), py::arg("tools") = py::list(),
             py::arg("starts_in_reasoning") = false, py::arg("stop_after_call") = false);
}

void bind_families(py::module_& module) {
    using F = ParserFamily;
    py::class_<F>(module, "ParserFamily", "A family that ToolCallParser knows.")
        .def_readonly("name", &F::name)
        .def_readonly("models", &F::models, "Whose, in words.")
        .def_readonly("needs_special_tokens", &F::needs_special_tokens,
                      "Text that was decoded without special tokens cannot be parsed.")
        .def("__repr__", [](const F& family) {
            return "ParserFamily(name='" + family.name + "', models='" + family.models + "')";
        });
    module.def("parser_families", &parser_families, "The families that ToolCallParser knows.");
    module.def("detect_parser", &detect_parser, py::arg("chat_template"),
               "The family of the models that have this chat template, by the markers in it; None "
               "if it has none.");
}

/// OpenAI's: a word, or {"type": "function", "function": {"name"}}.
std::string to_tool_choice(const py::object& choice) {
    if (!py::isinstance<py::dict>(choice)) return to_text(choice);
    try {
        return to_text(choice["function"]["name"]);
    } catch (const py::error_already_set&) {
        throw InvalidArgument(
            "tool_choice must name a function as {'type': 'function', 'function': "
            "{'name': ...}}, got " +
                std::string(py::repr(choice)),
            ErrorCode::invalid_parameter, "tool_choice");
    }
}

void bind_tool_grammar(py::module_& module) {
    module.def(
        "tool_call_grammar",
        [](const py::object& tools, const std::string& family, const py::object& tool_choice,
           bool parallel_tool_calls) {
            find_grammar_library();
            const std::string json = to_json(tools);
            const ToolGrammarOptions options{to_tool_choice(tool_choice), parallel_tool_calls};
            const Unlocked unlocked;
            return tool_call_grammar(family, json, options);
        },
        py::arg("tools"), py::arg("family"), py::arg("tool_choice") = "auto",
        py::arg("parallel_tool_calls") = true,
        R"(The StructuredOutputConfig of what a model of the family may write if it has these tools.

ToolCallParser(family, tools=tools) finds in such a text only calls whose arguments are of the function's JSON
schema. tool_choice is "none", "auto", "required", a function's name, which is called once then, or OpenAI's dict
with a name. Raises ValueError for a schema that the family's notation cannot be held to.)");
}

void bind_text_parser_streamer(py::module_& module) {
    using S = TextParserStreamer;
    py::class_<S, PyTextParserStreamer, TextStreamer, py::smart_holder>(
        module, "TextParserStreamer",
        R"(A streamer of parsed messages. Subclass it and define
write(self, message: dict) -> StreamingStatus | bool | None.

It gets deltas: the new "content", which may be empty, and what the parsers found in the new text. Special
tokens are in the text if a parser needs them.)")
        .def(py::init<const Tokenizer&, std::vector<std::shared_ptr<IncrementalParser>>>(),
             py::arg("tokenizer"),
             py::arg("parsers") = std::vector<std::shared_ptr<IncrementalParser>>())
        .def(
            "_write",
            [](S& self, const std::variant<std::string, std::vector<int64_t>>& chunk) {
                const Unlocked unlocked;
                const auto* text = std::get_if<std::string>(&chunk);
                return text ? self.write_text(*text)
                            : self.write(std::get<std::vector<int64_t>>(chunk));
            },
            py::arg("chunk"), "Takes text, or tokens, as generate() gives them.")
        .def(
            "get_parsed_message",
            [](const S& self) { return from_json(self.get_parsed_message()); },
            "The deltas so far as one message.")
        .def("reset", &S::reset, py::call_guard<Unlocked>(),
             "For the next text: the message is empty, and the parsers begin anew.");
}

}  // namespace

void bind_parser(py::module_& module) {
    py::class_<Parser, PyParser, py::smart_holder>(
        module, "Parser",
        R"(Parses whole texts. Subclass it and define parse(self, message: dict) -> None: the text is
message["content"], and what is found in it is put into the message. One object may be called by several
threads.)")
        .def(py::init<>())
        .def(
            "parse",
            [](Parser& self, const py::dict& message) {
                parse_dict(message, [&](std::string& json) { self.parse(json); });
            },
            py::arg("message"), "Puts what it finds in the text into the message, a dict.")
        .def("needs_special_tokens", &Parser::needs_special_tokens,
             "Whether the text must have been decoded with its special tokens.");
}

void bind_parsers(py::module_& module) {
    bind_incremental_parser(module);
    bind_reasoning_parsers(module);
    bind_tool_parsers(module);
    bind_families(module);
    bind_tool_grammar(module);
    bind_text_parser_streamer(module);
}

}  // namespace pagewheel::python
