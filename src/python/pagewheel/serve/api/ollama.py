"""/api/chat and /api/generate, as Ollama's clients ask: answers are lines of JSON."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pagewheel.context_overflow import ERROR, TRUNCATE
from pagewheel.serve.api import openai_choices as openai
from pagewheel.serve.api.conversation import check_arguments, check_count, tool_call
from pagewheel.serve.api.generating import (
    Conversation,
    Prompt,
    encode_prompt,
    generating,
    infill_prompt,
    prompt_of,
)
from pagewheel.serve.api.output_processor import (
    CALL,
    CONTENT,
    REASONING,
    ChoiceMessage,
    MessagePart,
    OutputProcessor,
    arguments_of,
)
from pagewheel.serve.api.response_format import take_ollama_format
from pagewheel.serve.api.sampling_request import (
    MAX_TOKENS,
    SamplingRequest,
    limited_tokens,
    read_sampling,
)
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import take_tools
from pagewheel.serve.http.body import Fields, checked, fields_of, shown
from pagewheel.serve.http.errors import ApiError, bad_field
from pagewheel.serve.http.request_context import RawJson, json_text
from pagewheel.serve.models.engine import Engine
from pagewheel.serve.models.generation import CompletionOutput, Generation, OutputDelta

NDJSON = "application/x-ndjson"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"-?(\d+(\.\d+)?(ms|s|m|h))+", re.ASCII)
# Ollama's names of parameters that have another name here.
_OPTIONS = {"seed": "rng_seed", "repeat_penalty": "repetition_penalty", "stop": "stop_strings"}
# Options of the machine, of loading, and of a window that is the whole context here.
_HINTS = (
    *("num_keep", "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa"),
    *("low_vram", "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock"),
    *("embedding_only", "penalize_newline", "repeat_last_n", "tfs_z"),
)
_TEXTS = {CONTENT: "content", REASONING: "thinking"}


@dataclass
class OllamaRequest:
    """What is asked: a conversation, or a text that goes to the model as it is, or neither."""

    model: str
    sampling: SamplingRequest
    stream: bool
    keep_alive: float | None  # seconds; None: as the server keeps models
    conversation: Conversation | None
    is_chat: bool
    text: str | None = None
    suffix: str = ""
    history: Sequence[int] = field(default_factory=list)  # tokens before the prompt

    def line(self, is_done: bool, texts: dict[str, Any]) -> dict[str, Any]:
        """A line with what is new of the message, or with all of it."""
        now = rfc3339(datetime.now(timezone.utc))
        if self.is_chat:
            texts = {"message": {"role": "assistant", "content": "", **texts}}
        else:
            texts = {"response": texts.pop("content", ""), **texts}
        return {"model": self.model, "created_at": now, **texts, "done": is_done}


def rfc3339(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def model_name(context: Context, name: str) -> str:
    """The name of a model as it is known here: without the tag that Ollama's clients add."""
    known = context.service.registry.target
    plain = name.removesuffix(":latest")
    return plain if known(name) is None and known(plain) is not None else name


def read_chat(context: Context, fields: Fields) -> OllamaRequest:
    messages = fields.take("messages", list) or []
    tools = take_tools(fields)
    conversation = Conversation(_messages(messages), tools) if messages else None
    return _read(context, fields, conversation, is_chat=True)


def read_generate(context: Context, fields: Fields) -> OllamaRequest:
    prompt = fields.take("prompt", str, "")
    system = fields.take("system", str, "")
    _refuse_images(fields)
    if fields.take("template", str):
        raise bad_field("template", "is not supported", "unsupported_value")
    is_raw, suffix = fields.take("raw", bool, False), fields.take("suffix", str, "")
    history = fields.take("context", list) or []
    if not all(type(each) is int and 0 <= each < 2**31 for each in history):
        raise bad_field("context", "must be an array of token ids")
    conversation = None
    if prompt and not (is_raw or suffix):
        begin = [{"role": "system", "content": system}] if system else []
        conversation = Conversation([*begin, {"role": "user", "content": prompt}])
    request = _read(context, fields, conversation, is_chat=False)
    request.text, request.suffix, request.history = prompt or None, suffix, history
    return request


def _read(
    context: Context, fields: Fields, conversation: Conversation | None, *, is_chat: bool
) -> OllamaRequest:
    model = fields.need("model", str)
    stream = fields.take("stream", bool, True)
    keep_alive = _keep_alive(fields)
    sampling = _sampling(context, fields)
    sampling.response_format = take_ollama_format(fields)
    default = context.service.settings.context_overflow  # Ollama itself leaves old messages out
    sampling.overflow = TRUNCATE if default == ERROR else default
    think = fields.take_any("think")
    if think is not None and conversation is not None:
        conversation.template_kwargs["enable_thinking"] = bool(think)
        if isinstance(think, str):
            conversation.template_kwargs["reasoning_effort"] = think
    if not isinstance(think, (bool, str, type(None))):
        raise bad_field("think", f"must be true, false or a level, got {shown(think)}")
    if conversation is not None:
        sampling.tools, conversation.overflow = conversation.tools, sampling.overflow
    fields.refuse_rest()
    return OllamaRequest(model, sampling, stream, keep_alive, conversation, is_chat)


def _sampling(context: Context, fields: Fields) -> SamplingRequest:
    with fields.inner("options") as given:
        for hint in _HINTS:
            given.take_any(hint)
        most = given.take("num_predict", int, -1)
        renamed = {_OPTIONS.get(name, name): value for name, value in given.take_rest().items()}
    options = Fields(renamed, "options.")
    sampling = read_sampling(context, options)
    options.refuse_rest()
    if most == 0 or most > MAX_TOKENS:
        raise bad_field("options.num_predict", f"is {most}; allowed: 1 to {MAX_TOKENS}, and -1")
    limits = context.service.settings.limits
    sampling.max_tokens = limited_tokens("options.num_predict", most if most > 0 else None, limits)
    sampling.with_log_probs = fields.take("logprobs", bool, False)
    sampling.top_log_probs = fields.take_int("top_logprobs", 0, openai.MAX_TOP, 0)
    return sampling


def _keep_alive(fields: Fields) -> float | None:
    """Seconds, or a text such as "5m" or "1h30m"; what is negative: for ever."""
    value = fields.take_any("keep_alive")
    if value is None:
        return None
    if isinstance(value, str) and len(value) < 40 and _DURATION.fullmatch(value):
        parts = re.findall(r"([\d.]+)(ms|s|m|h)", value)
        seconds = sum(float(count) * _UNITS[unit] for count, unit in parts)
        return math.inf if value.startswith("-") else seconds
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        value = int(value)
    if isinstance(value, str):
        raise bad_field("keep_alive", f"is {shown(value)}; allowed: seconds, or e.g. '5m'")
    seconds = checked("keep_alive", value, float)
    return math.inf if seconds < 0 else float(seconds)


def _messages(values: Sequence[Any]) -> list[dict[str, Any]]:
    """Gives them in OpenAI's form. Calls have no ids: results belong to them in their order."""
    check_count("messages", values)
    found: list[dict[str, Any]] = []
    open_calls: list[str] = []
    num_calls = 0
    for number, value in enumerate(values):
        where = f"messages[{number}]"
        fields = fields_of(where, value)
        role = fields.take_one_of("role", ("system", "user", "assistant", "tool"))
        message: dict[str, Any] = {"role": role, "content": fields.take("content", str, "")}
        _refuse_images(fields)
        thinking, calls = fields.take("thinking", str), fields.take("tool_calls", list)
        name, given = fields.take("tool_name", str), fields.take("tool_call_id", str)
        if role == "assistant" and thinking:
            message["reasoning_content"] = thinking
        if role == "assistant" and calls:
            ids = [f"call{num_calls + each:05d}" for each in range(len(calls))]
            num_calls += len(calls)
            message["tool_calls"] = [
                _tool_call(f"{where}.tool_calls[{place}]", one, ids[place])
                for place, one in enumerate(calls)
            ]
            open_calls = [each["id"] for each in message["tool_calls"]]
        if role == "tool":
            answered = given or (open_calls[0] if open_calls else "")
            open_calls = [each for each in open_calls if each != answered]
            message |= {"tool_call_id": answered, **({"name": name} if name else {})}
        fields.refuse_rest()
        found.append(message)
    return found


def _tool_call(where: str, value: Any, new_id: str) -> dict[str, Any]:
    fields = fields_of(where, value)
    fields.take_one_of("type", ("function",), "function")
    with fields.inner("function", is_required=True) as call:
        call.take("index", int)
        name, arguments = call.need("name", str), call.need("arguments", dict)
    check_arguments(f"{where}.function.arguments", json_text(arguments))
    made = tool_call(fields.take("id", str) or new_id, name, arguments)
    fields.refuse_rest()
    return made


def _refuse_images(fields: Fields) -> None:
    if fields.take("images", list):
        raise bad_field(
            fields.name("images"), "are not supported, the model reads text", "unsupported_value"
        )


async def answer(context: Context, request: OllamaRequest) -> None:
    began = time.monotonic()
    registry = context.service.registry
    request.model = model_name(context, request.model)
    may_keep = context.is_admin or not context.service.keys
    if request.keep_alive is not None and may_keep:
        registry.keep_alive(request.model, request.keep_alive)
    if request.conversation is None and request.text is None:
        return await _load(context, request, may_keep)
    async with registry.use(request.model, request.sampling.deadline) as engine:
        load_seconds = time.monotonic() - began
        prompt = await _prompt(context, engine, request)
        async with generating(context, engine, [prompt], request.sampling) as generation:
            processor = OutputProcessor(engine, generation, prompt.parser)
            lines = _Lines(engine, request, generation, load_seconds)
            if request.stream:
                await _stream(context, processor, lines)
                return
            (output,) = await processor.read_all()
            whole = await lines.whole(processor.messages[0], output)
            await context.send_offloaded(lambda: whole, generation.num_generated)
    return None


async def _load(context: Context, request: OllamaRequest, may_keep: bool) -> None:
    """Loads the model where there is no prompt, or unloads it by a `keep_alive` of 0."""
    registry = context.service.registry
    is_end = request.keep_alive == 0 and may_keep
    if is_end:
        await registry.unload(request.model)
    else:
        async with registry.use(request.model, request.sampling.deadline):
            pass
    line = request.line(True, {}) | {"done_reason": "unload" if is_end else "load"}
    await context.send_json(line)


async def _prompt(context: Context, engine: Engine, request: OllamaRequest) -> Prompt:
    if request.conversation is not None:
        prompt = await prompt_of(context, engine, request.conversation)
    else:
        text = request.text or ""
        context.prompt_field = "prompt"
        prompt = await engine.with_text(
            context.api_key_id,
            len(text) + len(request.suffix),
            lambda: (
                infill_prompt(engine, text, request.suffix)
                if request.suffix
                else Prompt(encode_prompt(engine, text, True))
            ),
        )
    return Prompt([*request.history, *prompt.tokens], prompt.parser) if request.history else prompt


class _Lines:
    """Makes lines of deltas. A call is sent when it is whole."""

    def __init__(
        self, engine: Engine, request: OllamaRequest, generation: Generation, load_seconds: float
    ) -> None:
        self.request = request
        self.generated: list[int] = []
        self._engine = engine
        self._generation = generation
        self._load_seconds = load_seconds
        self._num_sent = 0  # calls

    async def delta(self, message: ChoiceMessage, delta: OutputDelta) -> dict[str, Any] | None:
        """The line of a delta; None where it brings nothing to see."""
        self.generated += delta.tokens
        is_over = delta.finish_reason is not None
        texts = _texts(delta.parts)
        calls = message.calls()
        if not is_over and message.parts and message.parts[-1].kind == CALL:
            calls.pop()  # it may still grow
        calls = calls[self._num_sent :]
        self._num_sent += len(calls)
        if calls:
            texts["tool_calls"] = [_call(each) for each in calls]
        scores = await self._log_probs(delta)
        return self.request.line(False, texts) | scores if texts or scores else None

    async def whole(self, message: ChoiceMessage, output: CompletionOutput) -> dict[str, Any]:
        self.generated += output.tokens
        texts = _texts(message.parts)
        if message.calls():
            texts["tool_calls"] = [_call(each) for each in message.calls()]
        scores = await self._log_probs(output)
        return self.request.line(True, texts) | scores | self._end(output.finish_reason)

    def last(self, finish_reason: str | None) -> dict[str, Any]:
        return self.request.line(True, {}) | self._end(finish_reason)

    async def _log_probs(self, delta: OutputDelta) -> dict[str, Any]:
        sampling = self.request.sampling
        if not sampling.with_log_probs or not delta.scored:
            return {}
        tokens = await openai.log_probs_of(self._engine, delta, sampling.top_log_probs)
        return {"logprobs": openai.chat_log_probs(tokens)["content"]}

    def _end(self, finish_reason: str | None) -> dict[str, Any]:
        times, generation = self._generation.times(), self._generation
        first = times.first_token or times.whole
        found: dict[str, Any] = {
            "done_reason": "length" if finish_reason == "length" else "stop",
            "total_duration": _nanoseconds(times.whole),
            "load_duration": _nanoseconds(self._load_seconds),
            "prompt_eval_count": generation.num_prompt_tokens,
            "prompt_eval_duration": _nanoseconds(first - self._load_seconds),
            "eval_count": generation.num_generated,
            # Clients divide by it. Tokens that came all at once took no longer than the answer.
            "eval_duration": _nanoseconds(times.decode or times.whole),
        }
        if not self.request.is_chat:
            found["context"] = [*generation.request.prompts[0], *self.generated]
        return found


async def _stream(context: Context, processor: OutputProcessor, lines: _Lines) -> None:
    deltas = await processor.started()
    await context.start_events(NDJSON)

    async def fail(error: ApiError) -> None:
        await context.send_line({"error": error.message})

    context.fail_stream = fail
    reason = None
    async for delta in deltas:
        line = await lines.delta(processor.messages[0], delta)
        if line is not None:
            await context.send_line(line, len(delta.scored))
        reason = delta.finish_reason or reason
    await context.send_line(lines.last(reason), len(lines.generated))
    await context.end_events()


def _texts(parts: Sequence[MessagePart]) -> dict[str, Any]:
    """The texts of content and of thoughts, those that there are."""
    found: dict[str, Any] = {}
    for each in parts:
        if each.kind != CALL and each.text:
            name = _TEXTS[each.kind]
            found[name] = found.get(name, "") + each.text
    return found


def _call(part: MessagePart) -> dict[str, Any]:
    # Line breaks, which end a line of the stream, stand between values alone: strings escape them.
    arguments = RawJson(re.sub(r"[\r\n]", " ", arguments_of(part.text).text))
    return {"function": {"name": part.name, "arguments": arguments}}


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))
