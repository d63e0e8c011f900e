"""What one API request generates: sequences of one or several prompts, as they come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pagewheel
from pagewheel._pagewheel import TokenLogProb
from pagewheel.errors import PagewheelError
from pagewheel.serve.errors import Kind, RequestError, refused, too_many, unavailable
from pagewheel.serve.metrics import FinishedRequest, ModelMetrics, RequestTimes
from pagewheel.serve.models.engine import Engine, EngineFailedError
from pagewheel.serve.models.quotas import QueueQuota

_REASONS = {
    pagewheel.GenerationFinishReason.STOP: "stop",
    pagewheel.GenerationFinishReason.LENGTH: "length",
    pagewheel.GenerationFinishReason.TOOL_CALL: "tool_calls",
    pagewheel.GenerationFinishReason.ERROR: "error",
}
# How often what nobody waits for is read, so that metrics know of it.
_SELDOM_SECONDS = 0.5


@dataclass
class MessagePart:
    """What is new of content, of reasoning or of a tool call, whose text is its arguments."""

    kind: str
    text: str
    index: int = 0  # of a call among the calls
    name: str = ""  # of a call; of its parts the first has it
    id: str = ""
    is_complete: bool = True
    scores: list[dict[str, Any]] = field(default_factory=list)  # of content's tokens, if asked for


@dataclass
class OutputDelta:
    """What steps gave to one sequence. The last one has a finish reason."""

    index: int = 0
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    # The tokens that log_probs and top_log_probs are of: those with a part in the text so far.
    scored: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    prompt_log_probs: list[float] = field(default_factory=list)
    prompt_top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # the request's stop string or token
    has_stop_token: bool = False  # its own or the model's, which has no text
    timed_out: bool = False
    parts: list[MessagePart] = field(default_factory=list)  # of the text, once it was parsed


class CompletionOutput(OutputDelta):
    """All deltas of a sequence together, but for their parts."""

    def add(self, delta: OutputDelta) -> None:
        self.text += delta.text
        self.tokens += delta.tokens
        self.scored += delta.scored
        self.log_probs += delta.log_probs
        self.top_log_probs += delta.top_log_probs
        self.prompt_log_probs += delta.prompt_log_probs
        self.prompt_top_log_probs += delta.prompt_top_log_probs
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.stop_reason is not None:
            self.stop_reason = delta.stop_reason
        self.timed_out |= delta.timed_out


@dataclass
class EngineRequest:
    """Prompts, and how each is continued `copies` times, of which each has `sequences`.

    `copies` are for greedy answers, which are all the same: the engine refuses to sample those.
    """

    prompts: Sequence[Sequence[int]]
    config: pagewheel.GenerationConfig
    copies: int = 1
    stop_tokens: Sequence[int] = ()  # the request's own, not the model's

    @property
    def sequences(self) -> int:
        return self.config.num_return_sequences

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.copies * self.sequences


class Generation:
    """Is in the engine from submit() to drop(), which frees its blocks at the next step."""

    def __init__(
        self,
        engine: Engine,
        request: EngineRequest,
        metrics: ModelMetrics,
        quota: QueueQuota,
        began: float,
        tells_cached: bool = True,
    ) -> None:
        """`began`: when the request arrived, by time.monotonic().

        `tells_cached`: whether its client may know how many tokens were cached.
        """
        self._tells_cached = tells_cached
        self._engine = engine
        self.request = request
        self._metrics = metrics
        self._quota = quota
        self._begun: set[int] = set()  # handles that have a token
        self._handles: list[pagewheel.GenerationHandle] = []
        self._ended: set[int] = set()  # choices that metrics know of
        self._begin = began
        self._submitted = began  # when the engine got it
        self._last_tokens: dict[int, float] = {}  # when each sequence's latest came
        self._num_tokens: Counter[int] = Counter()  # of each sequence
        self._first_token: float | None = None
        self._queue: float | None = None
        self._unended = "abort"  # why choices are over that have no end
        self._end: float | None = None  # when it was dropped
        self._choices: list[_Choices] = []

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.request.prompts)

    @property
    def num_generated(self) -> int:
        return self._num_tokens.total()

    def times(self) -> RequestTimes:
        """The time in the queue is known after drop()."""
        return RequestTimes(
            whole=self._now() if self._end is None else self._end,
            queue=self._queue,
            first_token=self._first_token,
            last_token=max(self._last_tokens.values(), default=None),
        )

    def _now(self) -> float:
        return time.monotonic() - self._begin

    @property
    def num_cached_tokens(self) -> int:
        """Of the prompts, those that were found in the prefix cache. 0 where nobody may know.

        Among keys that share prefixes the count would tell, token by token, what others have sent.
        """
        if not self._tells_cached:
            return 0
        handles = self._handles[:: self.request.copies]
        return sum(
            handle.get_perf_metrics().get_num_prefix_cache_hit_tokens() for handle in handles
        )

    @property
    def num_drafts(self) -> tuple[int, int]:
        """Tokens that were drafted, and those of them that were right; hidden as cached ones are.

        Drafts come from others' answers, too.
        """
        if not self._tells_cached:
            return 0, 0
        found = [handle.get_perf_metrics() for handle in self._handles]
        return (
            sum(each.get_num_drafted_tokens() for each in found),
            sum(each.get_num_accepted_tokens() for each in found),
        )

    async def submit(self) -> None:
        """Raises RequestError. Nothing is left in the engine then, nor if it is cancelled."""
        self._quota.take(len(self.request.prompts) * self.request.copies)
        try:
            self._handles = await self._engine.with_words(
                self._quota.api_key_id,
                (*self.request.config.bad_words, self.request.config.prediction),
                self._submit_all,
            )
        except pagewheel.QueueFullError as error:
            raise too_many(str(error), "queue_full", self._metrics.retry_seconds()) from None
        except EngineFailedError:
            raise _engine_failed() from None
        except (ValueError, IndexError) as error:
            raise refused(error) from None
        self._choices = [
            _Choices(handle, self._engine, self.request, number * self.request.sequences)
            for number, handle in enumerate(self._handles)
        ]

    def _submit_all(self) -> list[pagewheel.GenerationHandle]:
        self._submitted = time.monotonic()
        # Dropping a handle cancels its request: so do those before one that is refused.
        return [
            self._engine.submit(prompt, self.request.config)
            for prompt in self.request.prompts
            for _ in range(self.request.copies)
        ]

    async def deltas(self, seldom: bool = False) -> AsyncIterator[list[OutputDelta]]:
        """What each step gave, until all sequences are over. Raises RequestError if a step failed.

        `seldom`: several steps together where nobody waits for each of them.
        """
        if len(self._choices) == 1:
            async for deltas in self._choices[0].deltas(seldom):
                self._count(deltas)
                yield deltas
            return
        queue: asyncio.Queue[list[OutputDelta] | BaseException | None] = asyncio.Queue()
        readers = [asyncio.create_task(_forward(each, queue, seldom)) for each in self._choices]
        try:
            over = 0
            while over < len(readers):
                arrived = await queue.get()
                if isinstance(arrived, BaseException):
                    raise arrived
                if arrived is None:
                    over += 1
                    continue
                self._count(arrived)
                yield arrived
        finally:
            for reader in readers:
                reader.cancel()

    def end_choice(self, index: int) -> None:
        """Its answer is whole. It goes on unread where it shares its request with others."""
        if self.request.sequences == 1:
            self._handles[index].stop(pagewheel.GenerationFinishReason.TOOL_CALL)
            self._finished(index, "tool_calls")

    def _count(self, deltas: Sequence[OutputDelta]) -> None:
        now = self._now()
        for delta in deltas:
            count = len(delta.tokens)
            if count:
                self._num_tokens[delta.index] += count
                self._metrics.tokens(count)
                self._last_tokens[delta.index] = now
                handle = delta.index // self.request.sequences
                if handle not in self._begun:
                    self._begun.add(handle)
                    self._quota.leave()
                if self._first_token is None:
                    self._first_token = now
                    self._metrics.first_token(now)
            if delta.finish_reason is not None:
                self._finished(delta.index, delta.finish_reason)

    def _finished(self, index: int, reason: str) -> None:
        """Each choice counts once: the engine tells of those that were stopped here, too."""
        if index not in self._ended:
            self._ended.add(index)
            self._metrics.finished(reason)

    def fail(self) -> None:
        """Choices that have no end have none by an error, and not since the client left."""
        self._unended = "error"

    def drop(self) -> None:
        """Ends what still runs. To be called in any case."""
        self._quota.leave_all()
        if not self._handles:  # none came into the engine
            self._end = self._now()
            return
        raw = [handle.get_perf_metrics().raw_metrics for handle in self._handles]
        queued = raw[0].queue_durations
        before = self._submitted - self._begin
        self._queue = before + queued[0] / 1e6 if queued else None
        for index in range(self.request.choices):
            self._finished(index, self._unended)
        for handle in self._handles:
            handle.drop()
        self._end = self._now()
        self._metrics.ended(
            FinishedRequest(
                self.times(),
                self.num_prompt_tokens,
                list(self._num_tokens.values()),
                [each / 1e6 for one in raw for each in one.m_durations],  # between tokens
                self.request.choices,
                self.request.config.max_new_tokens,
            )
        )


class _Choices:
    """The sequences of one handle, as choices from number `first` on."""

    def __init__(
        self, handle: pagewheel.GenerationHandle, engine: Engine, request: EngineRequest, first: int
    ) -> None:
        self._handle = handle
        self._engine = engine
        self._request = request
        self._first = first
        self._open = set(range(request.sequences))
        self._log_probs = [_TextLogProbs() for _ in self._open]
        self._is_begun = False
        self._end: asyncio.Future[None] | None = None

    async def deltas(self, seldom: bool) -> AsyncIterator[list[OutputDelta]]:
        """With `seldom` the first tokens as they come, then what there is now and then."""
        while outputs := await self._outputs(seldom):
            yield [self._delta(index, output) for index, output in outputs.items()]
        status = self._handle.get_status()
        if status == pagewheel.GenerationStatus.TIMEOUT and self._open:
            yield [
                OutputDelta(self._first + index, finish_reason="length", timed_out=True)
                for index in sorted(self._open)
            ]
        elif status == pagewheel.GenerationStatus.CANCEL:
            raise RequestError(Kind.FAILED, "the request was cancelled", "cancelled")

    def _delta(self, index: int, output: pagewheel.GenerationOutput) -> OutputDelta:
        delta = OutputDelta(
            self._first + index,
            output.text,
            output.generated_ids,
            prompt_log_probs=output.prompt_log_probs,
            finish_reason=_REASONS.get(output.finish_reason),
        )
        if delta.finish_reason is not None:
            self._open.discard(index)
            stop = output.stop_reason
            delta.has_stop_token = isinstance(stop, int)
            if not delta.has_stop_token or stop in self._request.stop_tokens:
                delta.stop_reason = stop
        if self._request.config.logprobs > 0:
            self._log_probs[index].move(output, delta)
            delta.prompt_top_log_probs = output.prompt_top_log_probs
        return delta

    async def _outputs(self, seldom: bool) -> dict[int, pagewheel.GenerationOutput]:
        """Waits for what is new; gives nothing when the request is over."""
        while True:
            outputs = self._read()
            if not outputs and self._handle.get_status() != pagewheel.GenerationStatus.RUNNING:
                return self._read()  # what came between the two calls
            if outputs:
                self._is_begun = True
                return outputs
            await self._wait(seldom)

    def _read(self) -> dict[int, pagewheel.GenerationOutput]:
        try:
            return self._handle.read_available(with_text=True)
        except pagewheel.PipelineFailedError as error:
            self._engine.failed(error)
            raise _engine_failed() from None
        except PagewheelError as error:
            kind = Kind.INVALID if error.code == "no_token_possible" else Kind.FAILED
            raise RequestError(kind, str(error), error.code) from None

    async def _wait(self, seldom: bool) -> None:
        notifications = self._engine.notifications
        if notifications.is_closed:  # it would be asked for ever
            raise unavailable("the server is shutting down", "shutting_down")
        if not seldom or not self._is_begun:
            await notifications.expect(self._handle)
            return
        if self._end is None:
            self._end = notifications.expect(self._handle, at_end=True)
        await asyncio.wait((self._end,), timeout=_SELDOM_SECONDS)


class _TextLogProbs:
    """Holds back those of tokens that may belong to a stop string."""

    def __init__(self) -> None:
        self._held: list[tuple[int, float, list[TokenLogProb]]] = []
        self._num_taken = 0

    def move(self, output: pagewheel.GenerationOutput, delta: OutputDelta) -> None:
        """Gives the delta what came into the text."""
        self._held += zip(
            output.generated_ids, output.generated_log_probs, output.top_log_probs, strict=True
        )
        count = output.num_text_tokens - self._num_taken
        taken, self._held = self._held[:count], self._held[count:]
        self._num_taken += len(taken)
        for token, log_prob, likely in taken:
            delta.scored.append(token)
            delta.log_probs.append(log_prob)
            delta.top_log_probs.append(likely)


def _engine_failed() -> RequestError:
    # The reason is in the log, once for all requests.
    return unavailable("the model's engine has failed, and is loaded again", "engine_failed")


async def _forward(
    choices: _Choices, queue: asyncio.Queue[list[OutputDelta] | BaseException | None], seldom: bool
) -> None:
    try:
        async for deltas in choices.deltas(seldom):
            queue.put_nowait(deltas)
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)
