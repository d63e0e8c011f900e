"""Requests whose answers are the same whatever else a server does, and how to ask for them."""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import httpx
from asking import CHAT_TOOLS, SCHEMA

_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_SECONDS = 300.0
_TOKENS = 60
_SHAPE = {
    "type": "object",
    "properties": {"place": {"enum": ["Rome", "Oslo"]}, "is_far": {"type": "boolean"}},
    "required": ["place", "is_far"],
    "additionalProperties": False,
}


@dataclass
class Choice:
    """What came of one."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)  # name and arguments of each
    finish: str | None = None

    def add(self, part: dict[str, Any], finish: str | None) -> None:
        """A choice, a message, or a piece of one of them."""
        self.text += part.get("text") or part.get("content") or ""
        for number, call in enumerate(part.get("tool_calls") or []):
            index = call.get("index", number)
            if index == len(self.calls):
                self.calls.append(["", ""])
            function = call["function"]
            self.calls[index][0] += function.get("name") or ""
            self.calls[index][1] += function.get("arguments") or ""
        self.finish = finish or self.finish


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Path and body of each. They are greedy."""

    def tokens(count: int, seed: int) -> list[int]:
        return [5 + (seed * 37 + at) % 200 for at in range(count)]

    plain: dict[str, Any] = {"max_tokens": _TOKENS, "temperature": 0.0, "ignore_eos": True}
    stem = tokens(600, 50)
    found = [(_COMPLETIONS, {**plain, "prompt": tokens(40, seed)}) for seed in range(4)]
    found += [(_COMPLETIONS, {**plain, "prompt": stem + tokens(20, seed)}) for seed in range(4)]
    found.append((_COMPLETIONS, {**plain, "prompt": tokens(3000, 9), "max_tokens": 20}))
    found.append((_COMPLETIONS, {**plain, "prompt": tokens(30, 11), "n": 3}))
    chat: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Where is it?"}],
        "max_tokens": 300,
        "temperature": 0.0,
    }
    found.append((_CHAT, {**chat, "max_tokens": _TOKENS, "ignore_eos": True}))
    found.append((_CHAT, {**chat, "tools": CHAT_TOOLS[:1], "tool_choice": "required"}))
    for name, schema in (("place", SCHEMA), ("shape", _SHAPE)):
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
        found.append((_CHAT, {**chat, "response_format": form}))
    return found


def whole(client: httpx.Client, path: str, body: dict[str, Any]) -> list[Choice]:
    """Each choice of the answer in one piece. Raises httpx.HTTPError."""
    answer = client.post(path, json=body).raise_for_status().json()
    choices = []
    for given in answer["choices"]:
        choice = Choice()
        choice.add(given.get("message") or given, given["finish_reason"])
        choices.append(choice)
    return choices


def streamed(
    client: httpx.Client, path: str, body: dict[str, Any]
) -> tuple[list[Choice], list[float]]:
    """The choices, and when each event came. Raises httpx.HTTPError."""
    choices = [Choice() for _ in range(body.get("n", 1))]
    moments = [time.monotonic()]
    last = ""
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if not line:
                continue
            last = line.removeprefix("data: ")
            if last == "[DONE]":
                continue
            moments.append(time.monotonic())
            event = json.loads(last)
            if "error" in event:
                raise httpx.StreamError(str(event["error"]))
            for given in event["choices"]:
                part = given.get("delta") or given
                choices[given["index"]].add(part, given.get("finish_reason"))
    if last != "[DONE]":
        raise httpx.StreamError(f"the stream ended with {last[:100]!r}")
    return choices, moments


def alone(url: str) -> list[list[dict[str, Any]]]:
    """What each request gets while nobody else asks. Raises httpx.HTTPError."""
    with httpx.Client(base_url=url, timeout=_SECONDS) as client:
        return [[asdict(each) for each in whole(client, *request)] for request in requests()]


class PoliteClient:
    """Compares what it gets with what it got alone."""

    def __init__(self, url: str, expected: list[list[dict[str, Any]]], priority: int) -> None:
        self._client = httpx.Client(base_url=url, timeout=_SECONDS)
        self._requests = requests()
        self._expected = expected
        self._priority = priority
        self.longest_gap = 0.0  # between two events of a stream

    def ask(self, chance: random.Random) -> str | None:
        """What was wrong, if anything."""
        index = chance.randrange(len(self._requests))
        path, body = self._requests[index]
        body = {**body, "priority": self._priority}
        if chance.random() < 0.3:
            choices = whole(self._client, path, body)
        else:
            choices, moments = streamed(self._client, path, body)
            gaps = [after - before for before, after in pairwise(moments)]
            self.longest_gap = max(self.longest_gap, *gaps)
        got = [asdict(each) for each in choices]
        if got != self._expected[index]:
            return f"request {index} gave {got}, alone it gives {self._expected[index]}"
        return None

    def close(self) -> None:
        self._client.close()
