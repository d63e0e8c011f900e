# ruff: noqa: RUF001 (DeepSeek's markers)
"""What is no call is content, nothing is lost, and no text takes long."""

from __future__ import annotations

import random
import time

import pytest
from fuzzing import TIMES
from messages import deltas, joined, named_calls, parsed
from renderings import STYLES, Call

import pagewheel

FAMILIES = [family.name for family in pagewheel.parser_families()]
CALL = [Call("f", {"a": "b", "c": [1, {"d": None}]}, "id1")]
FRAGMENTS = sorted({
    *(style.calls(CALL) for style in STYLES.values()),
    "<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|channel|>",
    "<|message|>", "<|start|>", "analysis", " to=functions.f", "<|call|>", "<|end|>",
    "<function=f>", "<parameter=a>", "</parameter>", "</function>", "<arg_key>", "</arg_key>",
    "<arg_value>", '{"name": "f", ', '"arguments": {', '"parameters": ', '"id": "x"', "}", "]",
    "{", "[", "[f(", "a=", "'x", ")", ",", '"', "\\", "\n", " ", "text", "Zürich", "\x00",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json\n", "```",
    "```tool_code\n", "print(", "<escape>", "call:f{", "functools", "</s>", "<|im_end|>",
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.", ":0",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>",
    '<｜DSML｜invoke name="', "1e9", "null", "True", "\\u", "function",
})  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.fuzz
def test_random_fragments_are_parsed_alike_whole_and_in_pieces(family: str) -> None:
    rng = random.Random(family)
    for _ in range(150 * TIMES):
        fragments = rng.choices(FRAGMENTS, k=rng.randrange(1, 12))
        text = "".join(
            each[: rng.randrange(1, len(each) + 1)] if rng.random() < 0.2 else each
            for each in fragments
        )
        whole = parsed(family, text)
        for call in whole.get("tool_calls", []):
            if "complete" not in call:
                named_calls({"tool_calls": [call]})
        assert joined(deltas(family, text)) == whole, text
        cut = rng.randrange(len(text))
        assert joined(deltas(family, [text[:cut], text[cut:]])) == whole, text


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>\n{",
        '<tool_call>{"name": "f"',
        "<tool_call>{}</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "text"}</tool_call>',
        '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}}</tool_call>',
        "<tool_call>f(a=1)</tool_call>",
        "a <tool_cal",
        "</tool_call> </think> }",
    ],
)
def test_what_is_no_call_is_content_as_it_stands(text: str) -> None:
    assert parsed("qwen", text) == {"content": text}


@pytest.mark.parametrize("number", [" ", "x", "1\n2", "-1", "1" * 10, "7" * 60_000])
def test_an_id_that_is_no_number_is_none(number: str) -> None:
    text = (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:{number}"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
    )
    (call,) = parsed("kimi", text)["tool_calls"]
    assert call["function"]["name"] == "f"
    assert not call.get("id")


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("llama3_json", '{"name": "Bob", "age": 3}'),
        ("llama3_json", '{"parameters": {}}'),
        ("llama3_json", '[1, 2, {"a": [{"name": "x"}]}]'),
        ("llama3_pythonic", "[link](http://x), [f(1)] and [f(x)] and [a, b]"),
        ("llama4_pythonic", "[]"),
        ("mistral", "[TOOL_CALLS] none\n"),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}",
        ),
        ("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0 {}"),
        ("harmony", "<|channel|>final\n"),
        ("gemma", "```tool_code\nx = 1\n```"),
        ("glm", "<tool_call>{}</tool_call>"),
    ],
)
def test_texts_that_look_like_calls_of_other_families_are_content(family: str, text: str) -> None:
    assert parsed(family, text) == {"content": text}


def test_a_call_that_breaks_ends_incomplete_and_the_rest_is_content() -> None:
    text = 'Hm. <tool_call>{"name": "f", "arguments": {"a": oops}}</tool_call> Sorry.'
    message = parsed("qwen", text)
    assert message == {
        "content": "Hm. oops}}</tool_call> Sorry.",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "f", "arguments": '{"a": '},
                "complete": False,
            }
        ],
    }


def test_a_marker_in_an_argument_is_text_of_it() -> None:
    inner = '</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call><think>'
    text = STYLES["qwen"].calls([Call("f", {"a": inner})])
    assert named_calls(parsed("qwen", text)) == [("f", {"a": inner})]
    assert parsed("qwen", text)["content"] == ""


def test_a_call_after_one_that_was_none_is_found() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    message = parsed("qwen", "<tool_call> <tool_call" + call)
    assert named_calls(message) == [("f", {})]
    assert message["content"] == "<tool_call> <tool_call"
    assert named_calls(parsed("qwen", call[:-12] + call)) == [("f", {}), ("f", {})]  # not closed


def test_a_call_in_reasoning_is_reasoning() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    message = parsed("qwen", f"<think>{call}</think>{call}")
    assert message["reasoning_content"] == call
    assert named_calls(message) == [("f", {})]


def test_space_between_sections_is_no_content() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert parsed("qwen", f"<think>a</think>\n\n{call}\n{call}\n")["content"] == ""
    assert parsed("qwen", f"<think>a</think>\n\nb {call}\n c")["content"] == "\n\nb \n c"


HEAVY = (
    "[", "{", '{"a":', "<", "[f(a=[", "<tool_call>",
    '<tool_call>{"name": "f", "arguments": {"a": [',
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:",
    "<｜tool▁calls▁begin｜>", " to=functions.", "<think>", '{"name": "', "<|channel|>",
    "```tool_code\nf(a='",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_megabyte_of_brackets_or_markers_takes_seconds_at_most(family: str) -> None:
    for piece in HEAVY:
        text = piece * (1_000_000 // len(piece.encode()))
        parser = pagewheel.ToolCallIncrementalParser(family)
        begin = time.perf_counter()
        content = parser.parse({}, text)
        content += parser.finish({})
        assert time.perf_counter() - begin < 10, piece
        assert len(content) <= len(text)


def test_deep_arguments_end_the_call() -> None:
    deep = '{"a": ' * 200 + "1" + "}" * 200
    message = parsed("qwen", f'<tool_call>{{"name": "f", "arguments": {deep}}}</tool_call>')
    assert message["tool_calls"][0]["complete"] is False
    arguments = message["tool_calls"][0]["function"]["arguments"]
    assert arguments.count("{") == 99  # the call is an object too
    assert deep.startswith(arguments)


def test_line_breaks_in_texts_are_escaped() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "1\n2\t\x01"}}</tool_call>'
    assert named_calls(parsed("qwen", text)) == [("f", {"a": "1\n2\t\x01"})]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", 1), ("-1.", -1.0), (".5", 0.5), ("1_000", 1000), ("+3", 3), ("1e3", 1000.0),
        ("True", True), ("None", None), ("false", False), ("(1, 'a',)", [1, "a"]), ("()", []),
        ("{'a': [], \"b\": {}}", {"a": [], "b": {}}),
        (r"'\x41\u00e9\U0001F600\101\n\q\\'", "Aé😀A\n\\q\\"),
        ('"it\'s"', "it's"), ("'\\ud83d\\ude00'", "😀"), ("[ [1] , ]", [[1]]),
    ],
)  # fmt: skip
def test_values_of_python_become_json(value: str, expected: object) -> None:
    assert named_calls(parsed("llama3_pythonic", f"[f(a={value})]")) == [("f", {"a": expected})]


@pytest.mark.parametrize("value", ["x", "1 2", "f'x'", "lambda: 1", "'a' 'b'", "{1}", "0x10", "-"])
def test_other_expressions_of_python_end_the_call(value: str) -> None:
    (call,) = parsed("llama3_pythonic", f"[f(a={value})]")["tool_calls"]
    assert call["complete"] is False


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7), ("text", "text"), ("[1]", [1]), ("{'a': None}", {"a": None}), ("007", "007"),
        ("true", True), ("None", None), ("", ""), ("1, 2", "1, 2"), ('"quoted"', '"quoted"'),
        ("a\nb", "a\nb"), ("[not a list", "[not a list"), (" x ", " x "), ("nothing", "nothing"),
    ],
)  # fmt: skip
def test_values_without_quotes_are_json_if_they_can_be_and_nobody_knows_better(
    value: str, expected: object
) -> None:
    parameter = f"<parameter=a>\n{value}\n</parameter>\n"
    text = f"<tool_call>\n<function=f>\n{parameter}</function>\n</tool_call>"
    assert named_calls(parsed("qwen3_coder", text)) == [("f", {"a": expected})]
    tools = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]
    assert named_calls(parsed("qwen3_coder", text, tools=tools)) == [("f", {"a": value})]


@pytest.mark.parametrize(
    "value",
    [
        '[True], path="/etc/passwd"',
        "[True],",
        "None, a=1",
        "{'a': None}, b=(1)",
        "[None] , path='x'",
    ],
)
@pytest.mark.parametrize("family", ["qwen3_coder", "glm"])
def test_a_value_brings_no_other_argument(family: str, value: str) -> None:
    text = {
        "qwen3_coder": f"<function=f><parameter=items>{value}</parameter></function>",
        "glm": f"f<arg_key>items</arg_key><arg_value>{value}</arg_value>",
    }[family]
    tools = [{"name": "f", "parameters": {"properties": {"items": {"type": "array"}}}}]
    for given in ({"tools": tools}, {}):
        message = parsed(family, f"<tool_call>{text}</tool_call>", **given)
        assert named_calls(message) == [("f", {"items": value})]


def test_commas_in_a_value_of_python_stay_in_it() -> None:
    text = "<function=f><parameter=items>[True, 'a, b', (1, None)]</parameter></function>"
    message = parsed("qwen3_coder", f"<tool_call>{text}</tool_call>")
    assert named_calls(message) == [("f", {"items": [True, "a, b", [1, None]]})]


def test_the_prompt_may_have_begun_the_reasoning() -> None:
    for tag in ("", "<think>", "\n<think>"):
        message = parsed("qwen", tag + "a <b> c</think>d", starts_in_reasoning=True)
        assert message["reasoning_content"].strip() == "a <b> c"
        assert message["content"] == "d"
    assert parsed("qwen", "a</think>d")["content"] == "a</think>d"


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"family is 'none'; allowed: harmony, .*think"):
        pagewheel.ToolCallParser("none")
    with pytest.raises(ValueError, match="tools must be an array"):
        pagewheel.ToolCallParser("qwen", tools={"name": "f"})
    with pytest.raises(ValueError, match="a tool must be an object"):
        pagewheel.ToolCallParser("qwen", tools=[1])
    with pytest.raises(ValueError, match="a message has content 3; allowed: a text"):
        pagewheel.ToolCallParser("qwen").parse({"content": 3})
    with pytest.raises(ValueError, match="close_tag is empty"):
        pagewheel.ReasoningParser(close_tag="")
    with pytest.raises(ValueError, match="open_tag is empty"):
        pagewheel.ReasoningIncrementalParser(open_tag="")
