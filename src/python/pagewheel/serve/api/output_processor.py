"""Makes content, reasoning and tool calls of an output's text, as it comes."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pagewheel
from pagewheel.serve.errors import Kind, RequestError, too_late
from pagewheel.serve.http.body import lenient_json
from pagewheel.serve.http.request_context import RawJson
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import (
    CompletionOutput,
    Generation,
    MessagePart,
    OutputDelta,
)

CONTENT, REASONING, CALL = "content", "reasoning", "call"
_ALPHANUMERIC = string.ascii_letters + string.digits
# Mistral's templates take no other ids than those of nine letters and digits.
_MISTRAL_ID = 9

OutputDeltas = AsyncIterator[OutputDelta]


@dataclass(frozen=True)
class ParserConfig:
    """How outputs are parsed. Without a family all of a text is content."""

    family: str | None = None
    tools: Sequence[dict[str, Any]] = ()
    starts_in_reasoning: bool = False
    stops_after_call: bool = False

    @property
    def needs_special_tokens(self) -> bool:
        """Whether the family's markers are tokens that a text does not show."""
        return any(
            each.needs_special_tokens
            for each in pagewheel.parser_families()
            if each.name == self.family
        )


@dataclass
class ChoiceMessage:
    """The message of one choice, which grows by what deltas bring."""

    config: ParserConfig
    parts: list[MessagePart] = field(default_factory=list)
    is_ended: bool = False  # by its first call, where that is to be the only one
    ids: set[str] = field(default_factory=set)  # of its calls

    def __post_init__(self) -> None:
        config = self.config
        self._parser = None
        if config.family is not None:
            self._parser = pagewheel.ToolCallIncrementalParser(
                config.family,
                tools=list(config.tools),
                starts_in_reasoning=config.starts_in_reasoning,
                stop_after_call=config.stops_after_call,
            )

    def add(self, delta: OutputDelta) -> list[MessagePart]:
        """Gives what is new, in order."""
        if self._parser is None:
            return self._joined([MessagePart(CONTENT, delta.text)] if delta.text else [])
        parsed: dict[str, Any] = {}
        content = self._parser.parse(parsed, delta.text) if delta.text else ""
        found = self._parts(parsed, content)
        self.is_ended = self._parser.get_status() == pagewheel.StreamingStatus.TOOL_CALL_STOP
        if delta.finish_reason is not None and not self.is_ended:
            rest: dict[str, Any] = {}
            content = self._parser.finish(rest)
            found += self._parts(rest, content)
        return self._joined(found)

    def finish_reason_of(self, reason: str | None) -> str | None:
        """The reason of a message's end: calls are one."""
        has_call = any(each.kind == CALL and each.is_complete for each in self.parts)
        return "tool_calls" if has_call and reason in ("stop", "tool_calls") else reason

    def text_of(self, kind: str) -> str:
        return "".join(each.text for each in self.parts if each.kind == kind)

    def calls(self) -> list[MessagePart]:
        return [each for each in self.parts if each.kind == CALL]

    def _parts(self, parsed: dict[str, Any], content: str) -> list[MessagePart]:
        """In the text's order, the rest of an open call comes before content."""
        calls = [self._call(each) for each in parsed.get("tool_calls", [])]
        found = [MessagePart(REASONING, parsed.get("reasoning_content", ""))]
        found += [each for each in calls if not each.name]
        found.append(MessagePart(CONTENT, content))
        found += [each for each in calls if each.name]
        return [each for each in found if each.text or each.kind == CALL]

    def _call(self, parsed: dict[str, Any]) -> MessagePart:
        function = parsed.get("function", {})
        name = function.get("name", "")
        given = parsed.get("id", "")
        if name:
            if not given or given in self.ids:
                given = self._new_id()
            self.ids.add(given)
        text, is_complete = function.get("arguments", ""), parsed.get("complete", True)
        return MessagePart(CALL, text, parsed["index"], name, given, is_complete)

    def _new_id(self) -> str:
        if self.config.family == "mistral":
            return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(_MISTRAL_ID))
        return f"call_{secrets.token_hex(12)}"

    def _joined(self, found: list[MessagePart]) -> list[MessagePart]:
        """Puts what was found to what came before."""
        for each in found:
            last = self.parts[-1] if self.parts else None
            if last and last.kind == each.kind and last.index == each.index and not each.name:
                last.text += each.text
                last.is_complete &= each.is_complete
            else:
                self.parts.append(replace(each, scores=[]))
        return found


class OutputProcessor:
    """Parses the outputs of all choices of a generation, whether it is streamed or not."""

    def __init__(self, engine: Engine, generation: Generation, parser: ParserConfig) -> None:
        self.generation = generation
        self.messages = [ChoiceMessage(parser) for _ in range(generation.request.choices)]
        self._engine = engine

    async def deltas(self, seldom: bool = False) -> OutputDeltas:
        """Gives the generation's deltas with their parts. Raises RequestError."""
        num_failed = 0
        async for deltas in self.generation.deltas(seldom):
            for delta in deltas:
                num_failed += delta.finish_reason == "error"
                if num_failed == len(self.messages):  # else the others go on
                    raise _no_token_left(delta)
                message = self.messages[delta.index]
                if message.is_ended:
                    continue
                delta.parts = message.add(delta)
                if message.is_ended and delta.finish_reason is None:
                    self.generation.end_choice(delta.index)
                    delta.finish_reason = "tool_calls"
                delta.finish_reason = message.finish_reason_of(delta.finish_reason)
                yield delta

    async def started(self) -> OutputDeltas:
        """deltas(), as soon as a token is among them.

        A stream that begins then has told its client nothing before: what goes wrong in the queue
        or in the prompt is an error with a status, and another replica may serve the request.
        """
        deltas = self.deltas()
        held: list[OutputDelta] = []
        async for each in deltas:
            held.append(each)
            if each.tokens or each.finish_reason not in ("length", "error"):
                break
        else:
            _refuse_nothing(held)

        async def joined() -> OutputDeltas:
            for each in held:
                yield each
            async for each in deltas:
                yield each

        return joined()

    async def read_all(self) -> list[CompletionOutput]:
        """Puts deltas() together. Raises RequestError, too where the deadline came first."""
        outputs = [CompletionOutput(number) for number in range(len(self.messages))]
        async for delta in self.deltas(seldom=True):
            outputs[delta.index].add(delta)
        _refuse_nothing(outputs)
        return outputs

    async def count_reasoning(self) -> int:
        """Tokens of what all choices have thought, as the text is encoded; tags do not count."""
        thoughts = [found for each in self.messages if (found := each.text_of(REASONING))]
        if not thoughts:
            return 0

        def work() -> int:
            return sum(len(self._engine.encode(each, False)) for each in thoughts)

        return min(await self._engine.in_thread(work), self.generation.num_generated)


def _refuse_nothing(outputs: Sequence[OutputDelta]) -> None:
    """Raises RequestError where the deadline came before any token, or no choice has a token."""
    if all(each.timed_out and not each.tokens for each in outputs):
        raise too_late()
    if all(each.finish_reason == "error" for each in outputs):
        raise _no_token_left(outputs[0])


def _no_token_left(output: OutputDelta) -> RequestError:
    reason = output.stop_reason or "the grammar allows none, or other bans leave nothing of it"
    return RequestError(Kind.INVALID, f"no token may come next: {reason}", "grammar_failed")


def arguments_of(text: str) -> RawJson:
    """Gives the object as the model wrote it; of arguments that were cut off, what there is."""
    try:
        if isinstance(
            json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str), dict
        ):
            return RawJson(text)
    except (ValueError, RecursionError):
        pass
    return RawJson(json.dumps(_readable_part(text)))


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _readable_part(text: str) -> dict[str, Any]:
    from pydantic_core import from_json

    try:
        value = lenient_json(text)
    except (ValueError, RecursionError):
        try:
            value = lenient_json(json.dumps(from_json(text, allow_partial=True)))
        except (ValueError, RecursionError):
            value = {}
    return value if isinstance(value, dict) else {}
