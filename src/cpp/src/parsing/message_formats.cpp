// The formats there are. A new one is an entry here.
#include "base/check.hpp"
#include "pagewheel/errors.hpp"
#include "parsing/message_format.hpp"

namespace pagewheel {
namespace {

const ReasoningTags think{{"<think>"}, {"</think>"}};

/// Where a list of calls in Python may begin.
constexpr const char* python_call_in_list =
    R"(\[[ \n\t\r]*[A-Za-z_\u{80}-\u{10ffff}][^ (\[\])]* ?\()";

// A call format has its literals in the order in which they are written: marker, open, before the
// name, after it, arguments, after them, separator, close.

const ArgumentFormat as_json{}, as_python{ArgumentFormat::Kind::PYTHON};

ArgumentFormat quoted(std::string quote) {
    return {ArgumentFormat::Kind::QUOTED, std::move(quote)};
}

/// Around keys: open, end, end before a value that is no text. Around values: open, close.
ArgumentFormat tagged(std::string key_open, std::string key_end, std::string json_key_end,
                      std::string value_open, std::string value_close, bool trims_lines = false) {
    return {ArgumentFormat::Kind::TAGGED, {},
            std::move(key_open),          std::move(key_end),
            std::move(json_key_end),      std::move(value_open),
            std::move(value_close),       trims_lines};
}

/// <parameter=a>value</parameter> for each argument.
ArgumentFormat xml(bool trims_lines) {
    return tagged("<parameter=", ">", "", "", "</parameter>", trims_lines);
}

CallFormat one(CallFormat call) {
    call.has_one_call = true;
    return call;
}

CallFormat repeated(CallFormat call) {
    call.has_one_call = call.may_repeat = true;
    return call;
}

/// {"name": "f", "arguments": {...}}
CallFormat json_object(const std::string& marker, const std::string& open = {},
                       const std::string& separator = {}, const std::string& close = {},
                       const std::string& key = "arguments") {
    CallFormat calls{
        marker, open, "{\"name\": \"", "\", \"" + key + "\": ", as_json, "}", separator, close};
    calls.is_object = true;
    return calls;
}

/// Calls, or sections of one call, each on lines of its own.
CallFormat json_lines(const std::string& marker, const std::string& closer) {
    return json_object(marker, "\n", "\n", "\n" + closer);
}

CallFormat json_list(const std::string& marker, const std::string& closer = {},
                     const std::string& open = "[") {
    return json_object(marker, open, ", ", "]" + closer);
}

/// f(a=1, b='x')
CallFormat python_calls(const std::string& marker, const std::string& open,
                        const std::string& separator, const std::string& close) {
    return {marker, open, "", "(", as_python, ")", separator, close};
}

/// <function=f>, then the arguments.
CallFormat xml_call(const std::string& marker, const std::string& before_name,
                    const std::string& closer, bool trims_lines) {
    return repeated(
        {marker, "", before_name, ">\n", xml(trims_lines), "</function>\n", "\n", closer});
}

/// f[ARGS]{...}, where an id may stand behind the name, and [ARGS] may be missing.
CallFormat mistral_named() {
    CallFormat call = repeated({"[TOOL_CALLS]", "", "", "[ARGS]"});
    call.before_id = "[CALL_ID]";
    call.may_omit_after_name = true;
    return call;
}

/// functions.f:0 is the id, where the number counts the conversation's calls.
CallFormat kimi_call() {
    CallFormat call{"<|tool_calls_section_begin|>",
                    "",
                    "<|tool_call_begin|>functions.",
                    "<|tool_call_argument_begin|>",
                    as_json,
                    "<|tool_call_end|>",
                    "",
                    "<|tool_calls_section_end|>"};
    call.before_id = ":";
    call.id_begin = "functions.";
    return call;
}

/// The word alone may be in a text about Python.
CallFormat functools() {
    CallFormat calls = json_list("functools", "", "");
    calls.trigger = "functools[";
    return calls;
}

constexpr bool with_special_tokens = true;

// Each: name, models, signs of its chat templates, reasoning, calls, dropped tokens, and flags.
std::vector<MessageFormat> make_message_formats() {
    return {
        {"harmony",
         "gpt-oss",
         {{"<|channel|>", "<|message|>"}},
         ReasoningTags{{}, {"<|end|>", "<|return|>", "<|call|>"}},
         {one({"", "", " to=functions.", "<|channel|>commentary <|constrain|>json<|message|>"}),
          one({"", "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>"})},
         {"<|end|>", "<|return|>", "<|call|>"},
         with_special_tokens,
         {},
         /*has_channels=*/true},
        {"deepseek_v32",
         "DeepSeek V3.2",
         {{"｜DSML｜", "function_calls"}},
         think,
         {{"<｜DSML｜function_calls>", "\n", "<｜DSML｜invoke name=\"", "\">\n",
           tagged("<｜DSML｜parameter name=\"", "\" string=\"true\">", "\" string=\"false\">", "",
                  "</｜DSML｜parameter>"),
           "</｜DSML｜invoke>\n", "", "</｜DSML｜function_calls>"}},
         {"<｜end▁of▁sentence｜>"},
         with_special_tokens},
        {"deepseek",
         "DeepSeek V3, V3.1 and R1",
         {{"<｜tool▁calls▁begin｜>"}},
         think,
         {{"<｜tool▁calls▁begin｜>", "", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", as_json,
           "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
          {"<｜tool▁calls▁begin｜>", "", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
           "\n```json\n", as_json, "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"}},
         {"<｜end▁of▁sentence｜>"},
         with_special_tokens},
        {"kimi",
         "Kimi K2",
         {{"<|tool_calls_section_begin|>"}, {"<|im_system|>tool_declare"}},
         think,
         {kimi_call()},
         {"<|im_end|>"},
         with_special_tokens},
        {"mistral",
         "Mistral, Ministral, Magistral and Devstral",
         {{"[TOOL_CALLS]"}},
         ReasoningTags{{"[THINK]"}, {"[/THINK]"}},
         {mistral_named(), json_list("[TOOL_CALLS]"), json_list("[TOOL_CALLS]", "", " [")},
         {"</s>"},
         with_special_tokens},
        {"functiongemma",
         "FunctionGemma",
         {{"<start_function_call>"}},
         {},
         {repeated({"<start_function_call>", "", "call:", "", quoted("<escape>"),
                    "<end_function_call>"})},
         {"<start_function_response>", "<end_of_turn>", "<eos>"},
         with_special_tokens},
        {"gemma4",
         "Gemma 4",
         {{"<|tool_call>"}},
         ReasoningTags{{"<|channel>thought\n"}, {"<channel|>"}},
         {repeated({"<|tool_call>", "", "call:", "", quoted("<|\"|>"), "<tool_call|>"})},
         {"<|tool_response>", "<turn|>", "<eos>"},
         with_special_tokens},
        {"seed",
         "Seed-OSS",
         {{"<seed:tool_call>"}},
         ReasoningTags{{"<seed:think>"}, {"</seed:think>"}},
         {xml_call("<seed:tool_call>", "\n<function=", "</seed:tool_call>", false)},
         {"<seed:eos>"}},
        {"qwen3_coder",
         "Qwen3-Coder, Qwen3.5 and Step 3.5",
         {{"<function=", "<parameter="}},
         think,
         // The first tag may be missing.
         {xml_call("<tool_call>", "\n<function=", "</tool_call>", true),
          xml_call("<function=", "", "</tool_call>", true)},
         {"<|im_end|>", "<|endoftext|>"}},
        {"glm",
         "GLM 4.5 and newer, Ling 3",
         {{"<arg_key>", "<tool_call>"}},
         think,
         {repeated({"<tool_call>", "", "", "\n",
                    tagged("<arg_key>", "</arg_key>", "", "\n<arg_value>", "</arg_value>"),
                    "</tool_call>", "\n"})},
         {"<|observation|>", "<|user|>", "<|endoftext|>", "<|role_end|>"}},
        {"gigachat",
         "GigaChat 3",
         {{"<|function_call|>"}, {"function call", "message_sep"}},
         {},
         {one(json_object("<|function_call|>")), one(json_object("function call<|role_sep|>\n"))},
         {"<|message_sep|>", "</s>"},
         with_special_tokens},
        {"apriel",
         "Apriel",
         {{"<tool_calls>[", "</tool_calls>"}},
         ReasoningTags{{"Here are my reasoning steps:\n"}, {"[BEGIN FINAL RESPONSE]"}},
         {json_list("<tool_calls>", "</tool_calls>")},
         {"<|end|>"}},
        {"minimax",
         "MiniMax M1",
         {{"<tool_calls>"}},
         think,
         {json_lines("<tool_calls>", "</tool_calls>")},
         {"<end_of_sentence>"}},
        {"qwen",
         "Qwen 2.5 and 3, QwQ, Hermes, SmolLM3, Granite 4, MiMo, Bielik",
         {{"<tool_call>"}},
         think,
         {repeated(json_lines("<tool_call>", "</tool_call>"))},
         {"<|im_end|>", "<|endoftext|>", "<|end_of_text|>"}},
        {"granite",
         "Granite 3",
         {{"<|tool_call|>", "<|start_of_role|>"}},
         ReasoningTags{{"<think>", "Here is my thought process:"},
                       {"</think>", "Here is my response:"}},
         {json_list("<|tool_call|>"), json_list("<tool_call>", "</tool_call>"),
          one(json_object("<function_call>"))},
         {"<response>", "</response>", "<|end_of_text|>"},
         with_special_tokens},
        {"phi4",
         "Phi-4-mini, Phi-4 reasoning",
         {{"<|tool_call|>"}, {"<|tool|>"}, {"functools"}, {"<|im_sep|>"}},
         think,
         {json_list("<|tool_call|>", "<|/tool_call|>"), functools()},
         {"<|end|>", "<|im_end|>", "<|endoftext|>"}},
        {"llama4_pythonic",
         "Llama 4",
         {{"<|header_start|>"}, {"<|python_start|>"}},
         {},
         {python_calls("", "[", ", ", "]"),
          python_calls("<|python_start|>", "[", ",", "]<|python_end|>")},
         {"<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>"},
         !with_special_tokens,
         python_call_in_list},
        {"llama3_json",
         "Llama 3.1, 3.2 and 3.3",
         {{"<|python_tag|>"}, {"<|start_header_id|>", "\"parameters\""}},
         {},
         {json_object("", "", "; ", "", "parameters"),
          json_object("<|python_tag|>", "", ";", "", "parameters")},
         {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
         !with_special_tokens,
         R"(\{[ \n\t\r]*"(name|function|parameters|arguments|id|type|[^"]*\\u))"},
        {"llama3_pythonic",
         "Llama 3.2",
         {{"<|start_header_id|>", "func_name1(params_name1"}},
         {},
         {python_calls("", "[", ", ", "]")},
         {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
         !with_special_tokens,
         python_call_in_list},
        {"gemma",
         "Gemma 2 and 3",
         {{"<start_of_turn>"}},
         {},
         {python_calls("```tool_code\n", "", "\n", "\n```")},
         {"<end_of_turn>", "<eos>"}},
        {"think",
         "models that reason between <think> and </think>, without tools",
         {{"</think>"}},
         think},
    };
}

}  // namespace

const std::vector<MessageFormat>& message_formats() {
    static const std::vector<MessageFormat> all = make_message_formats();
    return all;
}

const MessageFormat& find_message_format(const std::string& name) {
    std::string names;
    for (const MessageFormat& format : message_formats()) {
        if (format.name == name) return format;
        names += (names.empty() ? "" : ", ") + format.name;
    }
    throw InvalidArgument(concat("family is '", name, "'; allowed: ", names));
}

}  // namespace pagewheel
