"""One request of a client, streamed, and the moments at which its answer came."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_LONGEST_MESSAGE = 200  # characters of an error


@dataclass
class Call:
    """Seconds are since the load began. `error` is None where the answer came whole."""

    conversation: int
    question: int
    due: float
    sent: float = 0.0
    first: float | None = None  # the first piece of text
    last: float | None = None  # the latest one
    gaps: list[float] = field(default_factory=list)  # between pieces
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    counts_are_given: bool = False  # by the server; else pieces were counted
    text: str = ""
    error: str | None = None
    message: str = ""  # what the server said of the error

    @property
    def first_token_seconds(self) -> float | None:
        return None if self.first is None else self.first - self.sent

    @property
    def seconds(self) -> float | None:
        """The time from its sending to its last text."""
        return None if self.last is None else self.last - self.sent

    @property
    def seconds_per_token(self) -> float | None:
        """The mean time of tokens after the first one."""
        if self.first is None or self.last is None or self.completion_tokens < 2:
            return None
        return (self.last - self.first) / (self.completion_tokens - 1)


@dataclass(frozen=True)
class Target:
    """A server. `url` ends in /v1."""

    url: str
    model: str
    api: str = "chat"  # or completions
    api_key: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)  # of every request's body
    timeout: float = 600.0

    @property
    def path(self) -> str:
        return f"{self.url}/{'chat/completions' if self.api == 'chat' else 'completions'}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def body(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> dict[str, Any]:
        prompt = (
            {"messages": messages}
            if self.api == "chat"
            else {"prompt": "\n".join(message["content"] for message in messages)}
        )
        return {
            "model": self.model,
            **prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.fields,
        }


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._begin


async def send(
    session: aiohttp.ClientSession,
    target: Target,
    body: Mapping[str, Any],
    call: Call,
    clock: Clock,
) -> None:
    """Fills `call`. Whatever goes wrong with the request is in it, and is not raised."""
    call.sent = clock.now()
    try:
        async with session.post(target.path, json=body, headers=target.headers) as response:
            if response.status != 200:
                call.error = f"HTTP {response.status}"
                call.message = (await response.text(errors="replace"))[:_LONGEST_MESSAGE]
                return
            await _read(response, call, clock)
    except (TimeoutError, asyncio.TimeoutError):  # one and the same from Python 3.11 on
        call.error = "timeout"
    except (aiohttp.ClientError, OSError) as error:
        call.error, call.message = type(error).__name__, str(error)[:_LONGEST_MESSAGE]
    except ValueError as error:
        call.error, call.message = "malformed event", str(error)[:_LONGEST_MESSAGE]


async def _read(response: aiohttp.ClientResponse, call: Call, clock: Clock) -> None:
    pieces: list[str] = []
    is_whole = False
    async for data in events(response.content.iter_any()):
        if data == b"[DONE]":
            is_whole = True
            break
        event = _object("event", json.loads(data))
        if "error" in event:
            call.error = "error in the stream"
            call.message = json.dumps(event["error"])[:_LONGEST_MESSAGE]
            return
        if text := _text_of(event):
            now = clock.now()
            if call.last is None:
                call.first = now
            else:
                call.gaps.append(now - call.last)
            call.last = now
            pieces.append(text)
        _count(event, call)
    call.text = "".join(pieces)
    if not call.counts_are_given:
        call.completion_tokens = len(pieces)
    if not is_whole:
        call.error = "the stream ended early"
    elif call.first is None:
        call.error = "no text"


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the data of server-sent events that have one line of it, as OpenAI's have."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _object(name: str, value: Any) -> dict[str, Any]:
    """Gives an empty object for nothing. Raises ValueError for what is no object."""
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} is no object: {str(value)[:80]}")
    return value or {}


def _count_of(name: str, value: Any) -> int:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{name} is no count: {str(value)[:80]}")
    return value or 0


def _text_of(event: Mapping[str, Any]) -> str:
    """Gives the event's text, of whichever kind: reasoning and calls are tokens, too."""
    choices = event.get("choices") or []
    if not isinstance(choices, list):
        raise ValueError(f"choices is no list: {str(choices)[:80]}")
    for each in choices:
        choice = _object("a choice", each)
        if text := choice.get("text"):
            return str(text)
        delta = _object("delta", choice.get("delta"))
        for name in ("content", "reasoning_content", "reasoning"):
            if text := delta.get(name):
                return str(text)
        if calls := delta.get("tool_calls"):
            return json.dumps(calls)
    return ""


def _count(event: Mapping[str, Any], call: Call) -> None:
    usage = _object("usage", event.get("usage"))
    if not usage:
        return
    call.counts_are_given = True
    call.prompt_tokens = _count_of("prompt_tokens", usage.get("prompt_tokens"))
    call.completion_tokens = _count_of("completion_tokens", usage.get("completion_tokens"))
    details = _object("prompt_tokens_details", usage.get("prompt_tokens_details"))
    call.cached_tokens = _count_of("cached_tokens", details.get("cached_tokens"))
