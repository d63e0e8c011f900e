"""Tools for models whose chat templates know none: they are told of them in a message.

Calls are written as Hermes and Qwen write them, which the parser of that family reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

FAMILY = "qwen"
_INSTRUCTIONS = """\
You can call these functions:
{functions}
To call one, write its name and its arguments as JSON, in this form and nothing else:
<tool_call>
{{"name": "function-name", "arguments": {{"argument": "value"}}}}
</tool_call>
The result comes in <tool_response></tool_response>. Where no function helps, answer in words."""


def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """Tells a model of tools in OpenAI's form."""
    functions = "\n".join(json.dumps(each["function"], ensure_ascii=False) for each in tools)
    return _INSTRUCTIONS.format(functions=functions)


def in_plain_messages(
    messages: Sequence[Mapping[str, Any]], text: str, *, has_system_role: bool
) -> list[dict[str, Any]]:
    """Messages of plain roles: calls and results are texts, `text` stands before the conversation.

    It is in the system message, or in the first one of the user where templates refuse others.
    """
    found = [_plain(each) for each in messages]
    role = "system" if has_system_role else "user"
    begin = next((each for each in found if each["role"] == role), None)
    if begin is not None:
        begin["content"] = (
            f"{begin['content']}\n\n{text}"
            if has_system_role
            else (f"{text}\n\n{begin['content']}")
        )
        return found
    return [{"role": role, "content": text}, *found]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        content = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": content}
    calls = [
        "<tool_call>\n{}\n</tool_call>".format(
            json.dumps(
                {"name": each["function"]["name"], "arguments": each["function"]["arguments"]},
                ensure_ascii=False,
            )
        )
        for each in message.get("tool_calls", ())
    ]
    if not calls:
        return dict(message)
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": "\n".join([message["content"], *calls]).strip()}
