"""What one API request generates: sequences of one or several prompts, as they come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pagewheel
from pagewheel._pagewheel import TokenLogProb
from pagewheel.serve.http.admission import QueueQuota
from pagewheel.serve.http.errors import ApiError, too_many, unavailable
from pagewheel.serve.metrics import FinishedRequest, ModelMetrics
from pagewheel.serve.models.engine import Engine, EngineFailedError
from pagewheel.serve.models.refusals import refused
from pagewheel.serve.request_times import RequestTimes

_REASONS = {
    pagewheel.GenerationFinishReason.STOP: "stop",
    pagewheel.GenerationFinishReason.LENGTH: "length",
    pagewheel.GenerationFinishReason.TOOL_CALL: "tool_calls",
    pagewheel.GenerationFinishReason.ERROR: "error",
}
# How often what nobody waits for is read, so that metrics know of it.
_SELDOM_SECONDS = 0.5


@dataclass
class OutputDelta:
    """What a step gave to one sequence; `finish` with the last one."""

    index: int
    text: str
    tokens: list[int]
    log_probs: list[float]
    prompt_log_probs: list[float]
    top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    prompt_top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # the request's stop text or token
    timed_out: bool = False
    # The tokens that log_probs and top_log_probs are of: those that have a part in the text so far.
    scored: list[int] = field(default_factory=list)


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


@dataclass
class CompletionOutput:
    """All of a sequence."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    prompt_log_probs: list[float] = field(default_factory=list)
    top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    prompt_top_log_probs: list[list[TokenLogProb]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # the request's stop text or token
    timed_out: bool = False
    scored: list[int] = field(default_factory=list)

    def add(self, delta: OutputDelta) -> None:
        self.scored += delta.scored
        self.text += delta.text
        self.tokens += delta.tokens
        self.log_probs += delta.log_probs
        self.prompt_log_probs += delta.prompt_log_probs
        self.top_log_probs += delta.top_log_probs
        self.prompt_top_log_probs += delta.prompt_top_log_probs
        self.finish_reason = delta.finish_reason or self.finish_reason
        if delta.stop_reason is not None:
            self.stop_reason = delta.stop_reason
        self.timed_out |= delta.timed_out


class Generation:
    """In the engine from submit() to drop(), which frees its blocks at the next step."""

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
        self._request = request
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
        self._between: list[float] = []  # seconds between tokens
        self._unended = "abort"  # why choices are over that have no end
        self._end: float | None = None  # when it was dropped
        self._choices: list[_Choices] = []

    @property
    def request(self) -> EngineRequest:
        return self._request

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self._request.prompts)

    @property
    def num_generated(self) -> int:
        """Tokens of all choices."""
        return self._num_tokens.total()

    def times(self) -> RequestTimes:
        """So far; of the time in the queue it is told after drop()."""
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
        handles = self._handles[:: self._request.copies]
        return sum(
            handle.get_perf_metrics().get_num_prefix_cache_hit_tokens() for handle in handles
        )

    async def submit(self) -> None:
        """Raises ApiError. Nothing is left in the engine then, nor if it is cancelled."""
        self._quota.take(len(self._request.prompts) * self._request.copies)
        try:
            self._handles = await self._engine.with_words(
                self._quota.api_key_id, self._request.config.bad_words, self._submit_all
            )
        except pagewheel.QueueFullError as error:
            raise too_many(str(error), "queue_full", self._metrics.retry_seconds()) from None
        except EngineFailedError:
            raise _engine_failed() from None
        except (ValueError, IndexError) as error:
            raise refused(str(error)) from None
        sequences = self._request.sequences
        with_top = self._request.config.logprobs > 0
        self._choices = [
            _Choices(handle, self._engine, number * sequences, sequences, with_top)
            for number, handle in enumerate(self._handles)
        ]

    def _submit_all(self) -> list[pagewheel.GenerationHandle]:
        self._submitted = time.monotonic()
        # Dropping a handle cancels its request: so do those before one that is refused.
        return [
            self._engine.submit(prompt, self._request.config)
            for prompt in self._request.prompts
            for _ in range(self._request.copies)
        ]

    async def deltas(self, seldom: bool = False) -> AsyncIterator[list[OutputDelta]]:
        """What each step gave, until all sequences are over. Raises ApiError if a step failed.

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
        if self._request.sequences == 1:
            self._handles[index].stop(pagewheel.GenerationFinishReason.TOOL_CALL)
            self._finished(index, "tool_calls")

    def _count(self, deltas: Sequence[OutputDelta]) -> None:
        now = self._now()
        for delta in deltas:
            count = len(delta.tokens)
            if count:
                self._num_tokens[delta.index] += count
                self._metrics.tokens(count)
                is_first = delta.index not in self._last_tokens
                self._last_tokens[delta.index] = now
                if is_first:
                    self._left_queue(delta.index // self._request.sequences)
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

    def _left_queue(self, handle: int) -> None:
        if handle not in self._begun:
            self._begun.add(handle)
            self._quota.leave()

    def fail(self) -> None:
        """Choices that have no end have none by an error, and not since the client left."""
        self._unended = "error"

    def drop(self) -> None:
        """Ends what still runs. To be called in any case."""
        self._quota.leave_all()
        if self._handles:
            raw = [handle.get_perf_metrics().raw_metrics for handle in self._handles]
            queued = raw[0].queue_durations
            before = self._submitted - self._begin
            self._queue = before + queued[0] / 1e6 if queued else None
            self._between = [each / 1e6 for one in raw for each in one.m_durations]
            for index in range(self._request.choices):
                self._finished(index, self._unended)
        for handle in self._handles:
            handle.drop()
        self._end = self._now()
        if self._handles:
            self._metrics.ended(
                FinishedRequest(
                    self.times(),
                    self.num_prompt_tokens,
                    list(self._num_tokens.values()),
                    self._between,
                    self._request.choices,
                    self._request.config.max_new_tokens,
                )
            )


class _Choices:
    """The sequences of one handle, as choices from number `first` on."""

    def __init__(
        self,
        handle: pagewheel.GenerationHandle,
        engine: Engine,
        first: int,
        count: int,
        with_top: bool,
    ) -> None:
        self._handle = handle
        self._engine = engine
        self._with_top = with_top
        self._first = first
        self._open = set(range(count))
        self._scores = [_Scores() for _ in range(count)]

    async def deltas(self, seldom: bool) -> AsyncIterator[list[OutputDelta]]:
        """With `seldom` the first tokens as they come, then what there is now and then."""
        waiting = _Waiting(self._handle, self._engine, seldom)
        while outputs := await waiting.outputs():
            yield [self._delta_of(index, output) for index, output in outputs.items()]
        status = self._handle.get_status()
        if status == pagewheel.GenerationStatus.TIMEOUT and self._open:
            yield [
                OutputDelta(
                    self._first + index, "", [], [], [], finish_reason="length", timed_out=True
                )
                for index in sorted(self._open)
            ]
        elif status == pagewheel.GenerationStatus.CANCEL:
            raise _failed("the request was cancelled")

    def _delta_of(self, index: int, output: pagewheel.GenerationOutput) -> OutputDelta:
        finish_reason = _REASONS.get(output.finish_reason)
        if finish_reason is not None:
            self._open.discard(index)
        scores = self._scores[index].take(output) if self._with_top else []
        return OutputDelta(
            self._first + index,
            output.text,
            output.generated_ids,
            [score for _, score, _ in scores],
            output.prompt_log_probs,
            [likely for _, _, likely in scores],
            output.prompt_top_log_probs if self._with_top else [],
            finish_reason,
            scored=[token for token, _, _ in scores],
        )


class _Scores:
    """Of one sequence. Those of tokens that may belong to a stop text are held back with it."""

    def __init__(self) -> None:
        self._held: list[tuple[int, float, list[TokenLogProb]]] = []
        self._num_taken = 0

    def take(
        self, output: pagewheel.GenerationOutput
    ) -> list[tuple[int, float, list[TokenLogProb]]]:
        """Token, log-probability and likeliest tokens of what came into the text."""
        self._held += zip(
            output.generated_ids, output.generated_log_probs, output.top_log_probs, strict=True
        )
        count = output.num_text_tokens - self._num_taken
        taken, self._held = self._held[:count], self._held[count:]
        self._num_taken += len(taken)
        return taken


class _Waiting:
    """For one handle's outputs."""

    def __init__(self, handle: pagewheel.GenerationHandle, engine: Engine, seldom: bool) -> None:
        self._handle = handle
        self._engine = engine
        self._notifications = engine.notifications
        self._seldom = seldom
        self._is_begun = False
        self._end: asyncio.Future[None] | None = None

    async def outputs(self) -> dict[int, pagewheel.GenerationOutput]:
        """What is new; nothing when the request is over."""
        while True:
            outputs = self._read()
            if not outputs and self._handle.get_status() != pagewheel.GenerationStatus.RUNNING:
                return self._read()  # what came between the two calls
            if outputs:
                self._is_begun = True
                return outputs
            await self._wait()

    def _read(self) -> dict[int, pagewheel.GenerationOutput]:
        try:
            return self._handle.read_available(with_text=True)
        except pagewheel.PipelineFailedError as error:
            self._engine.failed(error)
            raise _engine_failed() from None
        except RuntimeError as error:
            raise _failed(str(error)) from None

    async def _wait(self) -> None:
        if self._notifications.is_closed:  # it would be asked for ever
            raise unavailable("the server is shutting down", "shutting_down")
        if not self._seldom or not self._is_begun:
            await self._notifications.expect(self._handle)
            return
        if self._end is None:
            self._end = self._notifications.expect(self._handle, at_end=True)
        await asyncio.wait((self._end,), timeout=_SELDOM_SECONDS)


def _engine_failed() -> ApiError:
    # The reason is in the log, once for all requests.
    return unavailable("the model's engine has failed, and is loaded again", "engine_failed")


def _failed(reason: str) -> ApiError:
    """The engine has ended the request. Its own bans may have left no token."""
    status = 400 if "no token can be chosen" in reason else 500
    return ApiError(status, reason, code="generation_failed")


async def _forward(
    choices: _Choices, queue: asyncio.Queue[list[OutputDelta] | BaseException | None], seldom: bool
) -> None:
    try:
        async for deltas in choices.deltas(seldom):
            queue.put_nowait(deltas)
        queue.put_nowait(None)
    except Exception as error:
        queue.put_nowait(error)
