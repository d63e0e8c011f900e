# ruff: noqa: RUF001 (DeepSeek's markers)
"""Tool calls as each family of models writes them, to be parsed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]
    id: str = ""


@dataclass(frozen=True)
class Style:
    """How a family writes a message, and what it cannot write."""

    calls: Callable[[Sequence[Call]], str]
    reasoning: tuple[str, str] | None = None
    ids: str = ""  # with the function's {name} and a {number}; empty: none
    one_call: bool = False
    plain_names: bool = False  # of functions and keys: letters, digits and _
    is_written: bool = True  # by grammars; else parsers alone take it
    unwritable: tuple[str, ...] = field(default=())  # not in any text

    def id_of(self, name: str, number: int) -> str:
        return self.ids.format(name=name, number=number)

    def message(self, content: str, reasoning: str, calls: Sequence[Call]) -> str:
        before = "" if not (self.reasoning and reasoning) else reasoning.join(self.reasoning)
        return before + content + self.calls(calls)


def _object(call: Call, arguments: str = "arguments") -> str:
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)


def _list(calls: Sequence[Call]) -> str:
    return "[" + ", ".join(map(_object, calls)) + "]"


def _hermes(calls: Sequence[Call]) -> str:
    return "\n".join(f"<tool_call>\n{_object(call)}\n</tool_call>" for call in calls)


def _mistral_old(calls: Sequence[Call]) -> str:
    objects = [{"name": c.name, "arguments": c.arguments, "id": c.id} for c in calls]
    return "[TOOL_CALLS]" + json.dumps(objects)


def _mistral(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{c.name}[ARGS]{json.dumps(c.arguments)}" for c in calls) + "</s>"


def _mistral_ids(calls: Sequence[Call]) -> str:
    return "".join(
        f"[TOOL_CALLS]{c.name}[CALL_ID]{c.id}[ARGS]{json.dumps(c.arguments)}" for c in calls
    )


def _deepseek_v3(calls: Sequence[Call]) -> str:
    written = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{c.name}\n```json\n"
        f"{json.dumps(c.arguments, ensure_ascii=False, indent=2)}\n```<｜tool▁call▁end｜>"
        for c in calls
    ]
    inner = "\n".join(written)
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜><｜end▁of▁sentence｜>"


def _deepseek_v31(calls: Sequence[Call]) -> str:
    written = [
        f"<｜tool▁call▁begin｜>{c.name}<｜tool▁sep｜>{json.dumps(c.arguments)}<｜tool▁call▁end｜>"
        for c in calls
    ]
    return f"<｜tool▁calls▁begin｜>{''.join(written)}<｜tool▁calls▁end｜>"


def _deepseek_v32(calls: Sequence[Call]) -> str:
    def value(key: str, given: Any) -> str:
        is_text = isinstance(given, str)
        shown = given if is_text else json.dumps(given)
        flag = str(is_text).lower()
        return f'<｜DSML｜parameter name="{key}" string="{flag}">{shown}</｜DSML｜parameter>\n'

    written = [
        f'<｜DSML｜invoke name="{c.name}">\n'
        + "".join(value(key, each) for key, each in c.arguments.items())
        + "</｜DSML｜invoke>\n"
        for c in calls
    ]
    return f"<｜DSML｜function_calls>\n{''.join(written)}</｜DSML｜function_calls>"


def _kimi(calls: Sequence[Call]) -> str:
    written = [
        f"<|tool_call_begin|>{c.id or f'functions.{c.name}:{i}'}<|tool_call_argument_begin|>"
        f"{json.dumps(c.arguments)}<|tool_call_end|>"
        for i, c in enumerate(calls)
    ]
    return f"<|tool_calls_section_begin|>{''.join(written)}<|tool_calls_section_end|>"


def _harmony(calls: Sequence[Call]) -> str:
    return "<|end|><|start|>assistant".join(
        f" to=functions.{c.name}<|channel|>commentary <|constrain|>json<|message|>"
        f"{json.dumps(c.arguments)}<|call|>"
        for c in calls
    )


def _python(calls: Sequence[Call]) -> list[str]:
    return [f"{c.name}({', '.join(f'{k}={v!r}' for k, v in c.arguments.items())})" for c in calls]


def _gemma_value(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return quote + value + quote
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_gemma_value(v, quote)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_gemma_value(each, quote) for each in value) + "]"
    return json.dumps(value)


def _gemma(calls: Sequence[Call], opener: str, quote: str, closer: str) -> str:
    return "".join(
        f"{opener}call:{c.name}{_gemma_value(c.arguments, quote)}{closer}" for c in calls
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _xml(calls: Sequence[Call], tag: str, line: str) -> str:
    written = []
    for c in calls:
        parameters = "".join(
            f"<parameter={key}>{line}{_value(value)}{line}</parameter>\n"
            for key, value in c.arguments.items()
        )
        written.append(f"<{tag}>\n<function={c.name}>\n{parameters}</function>\n</{tag}>")
    return "\n".join(written)


def _glm(calls: Sequence[Call]) -> str:
    written = []
    for c in calls:
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_value(value)}</arg_value>\n"
            for key, value in c.arguments.items()
        )
        written.append(f"<tool_call>{c.name}\n{pairs}</tool_call>")
    return "\n".join(written)


def _envelope(calls: Sequence[Call]) -> str:
    return json.dumps(
        [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls
        ]
    )


THINK = ("<think>", "</think>")
# By family and variant. Of a text with a family's own markers no family can tell where it ends.
STYLES = {
    "qwen": Style(_hermes, THINK),
    "llama3_json": Style(lambda calls: "; ".join(_object(c, "parameters") for c in calls)),
    "llama3_json/tag": Style(
        lambda calls: "<|python_tag|>" + ";".join(_object(c, "parameters") for c in calls)
    ),
    "llama3_json/list": Style(_list, is_written=False),
    "llama3_pythonic": Style(lambda calls: "[" + ", ".join(_python(calls)) + "]", plain_names=True),
    "llama4_pythonic": Style(
        lambda calls: "<|python_start|>[" + ",".join(_python(calls)) + "]<|python_end|><|eot|>",
        plain_names=True,
    ),
    "mistral/old": Style(_mistral_old, ("[THINK]", "[/THINK]"), "id{number}", is_written=False),
    "mistral": Style(_mistral, ("[THINK]", "[/THINK]")),
    "mistral/ids": Style(_mistral_ids, ids="id{number}", is_written=False),
    "deepseek/v3": Style(_deepseek_v3, THINK),
    "deepseek/v3.1": Style(_deepseek_v31, THINK),
    "deepseek_v32": Style(_deepseek_v32, THINK, unwritable=("</｜DSML",)),
    "kimi": Style(_kimi, THINK, "functions.{name}:{number}"),
    "phi4": Style(lambda calls: f"<|tool_call|>{_list(calls)}<|/tool_call|><|end|>", THINK),
    "phi4/functools": Style(lambda calls: f"functools{_list(calls)}", THINK),
    "phi4/envelope": Style(
        lambda calls: f"<|tool_call|>{_envelope(calls)}<|/tool_call|>", is_written=False
    ),
    "granite": Style(lambda calls: f"<|tool_call|>{_list(calls)}<|end_of_text|>", THINK),
    "granite/words": Style(
        lambda calls: f"<tool_call>{_list(calls)}</tool_call>",
        ("Here is my thought process:", "Here is my response:"),
    ),
    "harmony": Style(_harmony, ("<|channel|>analysis<|message|>", "<|end|>"), plain_names=True),
    "gemma": Style(
        lambda calls: "```tool_code\n" + "\n".join(_python(calls)) + "\n```", plain_names=True
    ),
    "gemma/print": Style(
        lambda calls: "```tool_code\n" + "\n".join(f"print({c})" for c in _python(calls)) + "\n```",
        plain_names=True,
        is_written=False,
    ),
    "functiongemma": Style(
        lambda calls: _gemma(calls, "<start_function_call>", "<escape>", "<end_function_call>"),
        plain_names=True,
        unwritable=("<escape>",),
    ),
    "gemma4": Style(
        lambda calls: _gemma(calls, "<|tool_call>", '<|"|>', "<tool_call|>"),
        ("<|channel>thought\n", "<channel|>"),
        plain_names=True,
        unwritable=('<|"|>',),
    ),
    "qwen3_coder": Style(
        lambda calls: _xml(calls, "tool_call", "\n"), THINK, unwritable=("</parameter>",)
    ),
    "seed": Style(
        lambda calls: _xml(calls, "seed:tool_call", ""),
        ("<seed:think>", "</seed:think>"),
        unwritable=("</parameter>",),
    ),
    "glm": Style(_glm, THINK, unwritable=("</arg_value>",)),
    "gigachat": Style(
        lambda calls: "<|function_call|>" + _object(calls[0]) + "<|message_sep|>\n\n",
        one_call=True,
    ),
    "apriel": Style(
        lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
        ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
    ),
    "minimax": Style(
        lambda calls: "<tool_calls>\n" + "\n".join(map(_object, calls)) + "\n</tool_calls>", THINK
    ),
}
