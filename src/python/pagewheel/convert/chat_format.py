"""Plain chats without Jinja: a template as text pieces, where it can be written so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..chat_template import render

Message = dict[str, str]

# Contents that templates may treat in their own way; `ChatFormat` must survive them all.
_ODD_CONTENTS = (
    "Hello",
    "",
    "two\nlines\n\nand more\n",
    "  spaces around  ",
    "\ttab, ünïcödé, 你好, 👩‍👩‍👧 and {{ braces }} {% if %}",
    "<|im_start|>user\n[INST] </s> 'quotes' \"both\" \\n & <b>",
)
_BOS_MARK = "PwBosE"
# For all conversations together, which take a tenth of a second.
_MAX_SECONDS = 10.0


@dataclass(frozen=True)
class RolePieces:
    before: str
    after: str


@dataclass(frozen=True)
class ChatFormat:
    """prefix, then default_system unless the first message is the system's, then
    before + content + after for each message, then generation_prompt where asked.
    """

    prefix: str
    default_system: str | None
    roles: dict[str, RolePieces]
    generation_prompt: str

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        text = self.prefix
        if self.default_system is not None and messages[0]["role"] != "system":
            text += self.default_system
        for message in messages:
            pieces = self.roles[message["role"]]
            text += pieces.before + message["content"] + pieces.after
        return text + self.generation_prompt if add_generation_prompt else text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def derive_chat_format(template: str, *, bos_token: str, eos_token: str) -> ChatFormat | None:
    """The pieces that make what the template renders, or None where there are none.

    Checked on conversations of one to five turns, with and without a system message.
    A template that refuses system messages gets no "system" role. One that takes longer than
    ten seconds for all of them has no pieces. Raises RuntimeError where render() does.
    """
    if "strftime_now" in template:
        return None  # what it renders tomorrow is not what it renders now

    deadline = time.monotonic() + _MAX_SECONDS

    def rendered(messages: Sequence[Message], prompt: bool = False, bos: str = bos_token) -> str:
        return render(
            template,
            messages,
            add_generation_prompt=prompt,
            bos_token=bos,
            eos_token=eos_token,
            max_seconds=max(deadline - time.monotonic(), 0),
        )

    try:
        # Only a template that asks for the bos token has a prefix: one that begins every
        # message with the same text, as <|im_start|>, has none.
        asks_for_bos = rendered([_message("user", "")], bos=_BOS_MARK).startswith(_BOS_MARK)
        candidate = _cut(rendered, bos_token if asks_for_bos else "")
    except ValueError:
        return None
    with_system = "system" in candidate.roles
    for messages in _conversations(with_system):
        for prompt in (False, True):
            try:
                expected = rendered(messages, prompt)
            except ValueError:
                return None
            if candidate.render(messages, add_generation_prompt=prompt) != expected:
                return None
    return candidate


def _cut(rendered: Callable[..., str], prefix: str) -> ChatFormat:
    """Renders marked contents and cuts the results at the marks."""
    user, assistant, again, system = "PwUserA", "PwAssistantB", "PwUserC", "PwSystemD"
    talk = [_message("user", user), _message("assistant", assistant), _message("user", again)]
    whole = rendered(talk)
    head, rest = _split(whole, user)
    user_to_assistant, rest = _split(rest, assistant)
    assistant_to_user, user_after = _split(rest, again)
    assistant_after = _split(rendered(talk[:2]), assistant)[1]
    assistant_before = _without_start(user_to_assistant, user_after)
    user_before = _without_start(assistant_to_user, assistant_after)
    generation_prompt = _without_start(rendered(talk, True), whole)
    default_system = _without_end(_without_start(head, prefix), user_before)
    roles = {
        "user": RolePieces(user_before, user_after),
        "assistant": RolePieces(assistant_before, assistant_after),
    }
    try:
        text = rendered([_message("system", system), *talk])
    except ValueError:
        text = ""  # the template takes no system messages
    if system in text:
        before, rest = _split(text, system)
        after = _without_end(_split(rest, user)[0], user_before)
        roles["system"] = RolePieces(_without_start(before, prefix), after)
    return ChatFormat(prefix, default_system or None, roles, generation_prompt)


def _conversations(with_system: bool) -> Iterator[list[Message]]:
    turns = len(_ODD_CONTENTS)
    for length in range(1, 6):
        for shift in range(turns):
            contents = [_ODD_CONTENTS[(shift + i) % turns] for i in range(length + 1)]
            talk = [
                _message("assistant" if i % 2 else "user", content)
                for i, content in enumerate(contents[:length])
            ]
            yield talk
            if with_system:
                yield [_message("system", contents[length]), *talk]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _split(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise ValueError(f"{mark!r} must appear once in the rendered chat")
    return before, after


def _without_start(text: str, start: str) -> str:
    if not text.startswith(start):
        raise ValueError(f"{text!r} does not start with {start!r}")
    return text[len(start) :]


def _without_end(text: str, end: str) -> str:
    if not text.endswith(end):
        raise ValueError(f"{text!r} does not end with {end!r}")
    return text[: len(text) - len(end)]
