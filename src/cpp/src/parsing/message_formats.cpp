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

/// {"name": "f", "arguments": {...}}
CallFormat json_object(std::string marker, const std::string& key = "arguments") {
    CallFormat calls;
    calls.marker = std::move(marker);
    calls.before_name = "{\"name\": \"";
    calls.after_name = "\", \"" + key + "\": ";
    calls.after_arguments = "}";
    calls.is_object = true;
    return calls;
}

CallFormat one(CallFormat call) {
    call.has_one_call = true;
    return call;
}

/// Calls, or sections of one call, each on lines of its own.
CallFormat json_lines(std::string marker, const std::string& closer) {
    CallFormat calls = json_object(std::move(marker));
    calls.open = calls.separator = "\n";
    calls.close = "\n" + closer;
    return calls;
}

CallFormat json_list(std::string marker, const std::string& closer = {}) {
    CallFormat calls = json_object(std::move(marker));
    calls.open = "[";
    calls.separator = ", ";
    calls.close = "]" + closer;
    return calls;
}

/// f(a=1, b='x')
CallFormat python(std::string marker, std::string open, std::string separator, std::string close) {
    CallFormat calls;
    calls.marker = std::move(marker);
    calls.open = std::move(open);
    calls.after_name = "(";
    calls.arguments.kind = ArgumentFormat::Kind::PYTHON;
    calls.after_arguments = ")";
    calls.separator = std::move(separator);
    calls.close = std::move(close);
    return calls;
}

/// call:f{a:1,b:QxQ}
CallFormat quoted(std::string marker, std::string quote, std::string closer) {
    CallFormat call;
    call.marker = std::move(marker);
    call.before_name = "call:";
    call.arguments.kind = ArgumentFormat::Kind::QUOTED;
    call.arguments.quote = std::move(quote);
    call.after_arguments = std::move(closer);
    call.has_one_call = call.may_repeat = true;
    return call;
}

/// <function=f>, then <parameter=a>value</parameter> for each argument.
CallFormat xml(std::string marker, std::string before_name, const std::string& closer,
               bool trims_lines) {
    CallFormat call;
    call.marker = std::move(marker);
    call.before_name = std::move(before_name);
    call.after_name = ">\n";
    call.arguments.kind = ArgumentFormat::Kind::TAGGED;
    call.arguments.key_open = "<parameter=";
    call.arguments.text_key_end = ">";
    call.arguments.value_close = "</parameter>";
    call.arguments.trims_lines = trims_lines;
    call.after_arguments = "</function>\n";
    call.close = closer;
    call.separator = "\n";
    call.has_one_call = call.may_repeat = true;
    return call;
}

CallFormat glm_call() {
    CallFormat call;
    call.marker = "<tool_call>";
    call.after_name = "\n";
    call.arguments.kind = ArgumentFormat::Kind::TAGGED;
    call.arguments.key_open = "<arg_key>";
    call.arguments.text_key_end = "</arg_key>";
    call.arguments.value_open = "\n<arg_value>";
    call.arguments.value_close = "</arg_value>";
    call.after_arguments = "</tool_call>";
    call.separator = "\n";
    call.has_one_call = call.may_repeat = true;
    return call;
}

CallFormat deepseek_v31() {
    CallFormat calls;
    calls.marker = "<｜tool▁calls▁begin｜>";
    calls.before_name = "<｜tool▁call▁begin｜>";
    calls.after_name = "<｜tool▁sep｜>";
    calls.after_arguments = "<｜tool▁call▁end｜>";
    calls.close = "<｜tool▁calls▁end｜>";
    return calls;
}

CallFormat deepseek_v3() {
    CallFormat calls = deepseek_v31();
    calls.before_name += "function<｜tool▁sep｜>";
    calls.after_name = "\n```json\n";
    calls.after_arguments = "\n```<｜tool▁call▁end｜>";
    calls.separator = "\n";
    return calls;
}

CallFormat deepseek_v32() {
    CallFormat calls;
    calls.marker = "<｜DSML｜function_calls>";
    calls.open = "\n";
    calls.before_name = "<｜DSML｜invoke name=\"";
    calls.after_name = "\">\n";
    calls.arguments.kind = ArgumentFormat::Kind::TAGGED;
    calls.arguments.key_open = "<｜DSML｜parameter name=\"";
    calls.arguments.text_key_end = "\" string=\"true\">";
    calls.arguments.json_key_end = "\" string=\"false\">";
    calls.arguments.value_close = "</｜DSML｜parameter>";
    calls.after_arguments = "</｜DSML｜invoke>\n";
    calls.close = "</｜DSML｜function_calls>";
    return calls;
}

CallFormat mistral_named() {
    CallFormat call;
    call.marker = "[TOOL_CALLS]";
    call.after_name = "[ARGS]";
    call.before_id = "[CALL_ID]";
    call.may_omit_after_name = true;
    call.has_one_call = call.may_repeat = true;
    return call;
}

CallFormat mistral_spaced_list() {
    CallFormat calls = json_list("[TOOL_CALLS]");
    calls.open = " [";
    return calls;
}

CallFormat repeated(CallFormat call) {
    call.has_one_call = call.may_repeat = true;
    return call;
}

CallFormat separated(CallFormat calls, std::string separator) {
    calls.separator = std::move(separator);
    return calls;
}

/// The word alone may be in a text about Python.
CallFormat functools() {
    CallFormat calls = json_list("functools");
    calls.trigger = "functools[";
    calls.open = "";
    return calls;
}

CallFormat harmony_call(std::string before_name, std::string after_name) {
    CallFormat call;
    call.has_one_call = true;
    call.before_name = std::move(before_name);
    call.after_name = std::move(after_name);
    return call;
}

constexpr bool with_special_tokens = true;

// Each: name, models, signs of its chat templates, reasoning, calls, dropped tokens, and flags.
std::vector<MessageFormat> make_message_formats() {
    return {
        {"harmony",
         "gpt-oss",
         {{"<|channel|>", "<|message|>"}},
         ReasoningTags{{}, {"<|end|>", "<|return|>", "<|call|>"}},
         {harmony_call(" to=functions.", "<|channel|>commentary <|constrain|>json<|message|>"),
          harmony_call("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>")},
         {"<|end|>", "<|return|>", "<|call|>"},
         with_special_tokens,
         {},
         /*has_channels=*/true},
        {"deepseek_v32",
         "DeepSeek V3.2",
         {{"｜DSML｜", "function_calls"}},
         think,
         {deepseek_v32()},
         {"<｜end▁of▁sentence｜>"},
         with_special_tokens},
        {"deepseek",
         "DeepSeek V3, V3.1 and R1",
         {{"<｜tool▁calls▁begin｜>"}},
         think,
         {deepseek_v31(), deepseek_v3()},
         {"<｜end▁of▁sentence｜>"},
         with_special_tokens},
        {"mistral",
         "Mistral, Ministral, Magistral and Devstral",
         {{"[TOOL_CALLS]"}},
         ReasoningTags{{"[THINK]"}, {"[/THINK]"}},
         {mistral_named(), json_list("[TOOL_CALLS]"), mistral_spaced_list()},
         {"</s>"},
         with_special_tokens},
        {"functiongemma",
         "FunctionGemma",
         {{"<start_function_call>"}},
         {},
         {quoted("<start_function_call>", "<escape>", "<end_function_call>")},
         {"<start_function_response>", "<end_of_turn>", "<eos>"},
         with_special_tokens},
        {"gemma4",
         "Gemma 4",
         {{"<|tool_call>"}},
         ReasoningTags{{"<|channel>thought\n"}, {"<channel|>"}},
         {quoted("<|tool_call>", "<|\"|>", "<tool_call|>")},
         {"<|tool_response>", "<turn|>", "<eos>"},
         with_special_tokens},
        {"seed",
         "Seed-OSS",
         {{"<seed:tool_call>"}},
         ReasoningTags{{"<seed:think>"}, {"</seed:think>"}},
         {xml("<seed:tool_call>", "\n<function=", "</seed:tool_call>", false)},
         {"<seed:eos>"}},
        {"qwen3_coder",
         "Qwen3-Coder, Qwen3.5 and Step 3.5",
         {{"<function=", "<parameter="}},
         think,
         // The first tag may be missing.
         {xml("<tool_call>", "\n<function=", "</tool_call>", true),
          xml("<function=", "", "</tool_call>", true)},
         {"<|im_end|>", "<|endoftext|>"}},
        {"glm",
         "GLM 4.5 and newer, Ling 3",
         {{"<arg_key>", "<tool_call>"}},
         think,
         {glm_call()},
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
         {python("", "[", ", ", "]"), python("<|python_start|>", "[", ",", "]<|python_end|>")},
         {"<|python_start|>", "<|python_end|>", "<|eot|>", "<|eom|>"},
         !with_special_tokens,
         python_call_in_list},
        {"llama3_json",
         "Llama 3.1, 3.2 and 3.3",
         {{"<|python_tag|>"}, {"<|start_header_id|>", "\"parameters\""}},
         {},
         {separated(json_object("", "parameters"), "; "),
          separated(json_object("<|python_tag|>", "parameters"), ";")},
         {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
         !with_special_tokens,
         R"(\{[ \n\t\r]*"(name|function|parameters|arguments|id|type|[^"]*\\u))"},
        {"llama3_pythonic",
         "Llama 3.2",
         {{"<|start_header_id|>", "func_name1(params_name1"}},
         {},
         {python("", "[", ", ", "]")},
         {"<|python_tag|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"},
         !with_special_tokens,
         python_call_in_list},
        {"gemma",
         "Gemma 2 and 3",
         {{"<start_of_turn>"}},
         {},
         {python("```tool_code\n", "", "\n", "\n```")},
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
