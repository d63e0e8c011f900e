"""Callbacks that raise, return nonsense, take long or generate again, as docs/caching.md has it.

Whatever they do, the pipeline answers afterwards as before, and no block is held.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bindings.call_fuzz import DropOldest
from conftest import batching_pipeline, drain, greedy
from waiting import eventually_in_loop

import pagewheel

pytestmark = pytest.mark.all_cores
PROMPT = [10, 20, 30]
LONG = list(range(10, 110))  # with 40 tokens more it is evicted from
LONG_ENOUGH = 60  # seconds, for what must come soon


class OwnError(Exception):
    pass


class Pipe:
    """Both pipelines, under one call from token ids to token ids."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.pipeline: Any
        if kind == "llm":
            self.pipeline = pagewheel.LLMPipeline(folder)
        else:
            self.pipeline = batching_pipeline(folder, num_kv_blocks=60)
        if kind == "started":
            self.pipeline.start()
        self.expected = self.generate()

    def generate(self, streamer: object = None, count: int = 12) -> list[int]:
        if self.kind == "llm":
            return self.pipeline.generate([PROMPT], greedy(count), streamer).tokens[0]
        return self.pipeline.generate([PROMPT], greedy(count), streamer)[0].m_generation_ids[0]

    def check(self) -> None:
        assert self.generate() == self.expected
        statistics = self.pipeline.get_statistics()
        assert statistics.num_requests == statistics.num_used_blocks == 0


@pytest.fixture(scope="module", params=["llm", "batching", "started"])
def shared_pipe(request: pytest.FixtureRequest, tiny_folder: Path) -> Iterator[Pipe]:
    pipe = Pipe(tiny_folder, request.param)
    yield pipe
    if pipe.kind == "started":
        pipe.pipeline.stop()


@pytest.fixture
def pipe(shared_pipe: Pipe) -> Iterator[Pipe]:
    yield shared_pipe
    shared_pipe.check()


class Streamer(pagewheel.StreamerBase):
    def __init__(self, write: Callable[[], object], end: Callable[[], object]) -> None:
        super().__init__()
        self._write, self._end = write, end

    def write(self, token: list[int]) -> Any:
        return self._write()

    def end(self) -> None:
        self._end()


def nothing() -> None:
    pass


# Ways in which generate() calls back: each makes a streamer that does `act`.
STREAMERS: dict[str, Callable[[Pipe, Callable[[], object]], object]] = {
    "function": lambda pipe, act: lambda text: act(),
    "write": lambda pipe, act: Streamer(act, nothing),
    "end": lambda pipe, act: Streamer(nothing, act),
    "TextStreamer": lambda pipe, act: pagewheel.TextStreamer(
        pipe.pipeline.get_tokenizer(), lambda text: act()
    ),
}
streamers = pytest.mark.parametrize("streamer", STREAMERS)


def called_once(act: Callable[[], object]) -> Callable[[], object]:
    calls: list[object] = []

    def first() -> object:
        calls.append(0)
        return act() if len(calls) == 1 else None

    return first


@streamers
def test_what_a_streamer_raises_reaches_the_caller(pipe: Pipe, streamer: str) -> None:
    def fail() -> None:
        raise OwnError("mine")

    with pytest.raises(OwnError, match="mine"):
        pipe.generate(STREAMERS[streamer](pipe, fail), count=40)
    assert pipe.pipeline.get_statistics().num_requests == 0  # it was cancelled


@pytest.mark.parametrize("answer", ["yes", 3.5, 7, -1, 10**30, [], b""], ids=repr)
@pytest.mark.parametrize("streamer", ["function", "write", "TextStreamer"])
def test_what_a_streamer_may_return_is_told(pipe: Pipe, streamer: str, answer: object) -> None:
    with pytest.raises(TypeError, match="must return None, bool or StreamingStatus, got "):
        pipe.generate(STREAMERS[streamer](pipe, lambda: answer), count=40)


def test_an_answer_of_end_is_not_looked_at(pipe: Pipe) -> None:
    assert pipe.generate(Streamer(nothing, lambda: "nonsense")) == pipe.expected


@streamers
def test_a_slow_streamer_holds_up_its_own_call_only(pipe: Pipe, streamer: str) -> None:
    other: list[list[int]] = []

    def wait_for_the_other() -> None:
        thread = threading.Thread(target=lambda: other.append(pipe.generate()))
        thread.start()
        thread.join(LONG_ENOUGH)

    slow = STREAMERS[streamer](pipe, called_once(wait_for_the_other))
    assert pipe.generate(slow) == pipe.expected
    assert other == [pipe.expected]


@streamers
def test_a_streamer_may_generate(pipe: Pipe, streamer: str) -> None:
    inner: list[list[int]] = []
    again = called_once(lambda: inner.append(pipe.generate()))
    assert pipe.generate(STREAMERS[streamer](pipe, again)) == pipe.expected
    assert inner == [pipe.expected]


def test_threads_that_generate_at_once_get_what_they_would_alone(pipe: Pipe) -> None:
    texts: list[str] = []
    pipe.generate(texts.append)
    results: list[tuple[list[int], str]] = []

    def work() -> None:
        for _ in range(5):
            pieces: list[str] = []
            results.append((pipe.generate(pieces.append), "".join(pieces)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_ENOUGH)
    assert results == [(pipe.expected, "".join(texts))] * 20


# ---- notify_once()


@pytest.fixture(params=[False, True], ids=["stepped", "started"])
def batching(
    request: pytest.FixtureRequest, tiny_folder: Path
) -> Iterator[pagewheel.ContinuousBatchingPipeline]:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    if request.param:
        pipeline.start()
    yield pipeline
    pipeline.stop()
    drain(pipeline)
    assert pipeline.get_statistics().num_used_blocks == 0


def tokens_of(handle: pagewheel.GenerationHandle) -> list[int]:
    return handle.read_all()[0].generated_ids


def test_what_a_notification_raises_harms_nobody(
    batching: pagewheel.ContinuousBatchingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no caller of its own to tell: Python's hook for such errors is."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: told.append(error.exc_type))

    def fail() -> None:
        raise OwnError

    first, second = (batching.add_request(i, PROMPT, greedy(12)) for i in range(2))
    called = threading.Event()
    first.notify_once(fail)
    first.notify_once(called.set)
    assert tokens_of(first) == tokens_of(second)
    assert called.wait(LONG_ENOUGH)
    first.notify_once(fail)  # at once
    first.notify_once(lambda missing: None)  # type: ignore[call-arg]
    assert told == [OwnError, OwnError, TypeError]
    with pytest.raises(TypeError, match="notify_once"):
        first.notify_once(3)  # type: ignore[arg-type]


def test_an_answer_of_a_notification_is_not_looked_at(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    handle = batching.add_request(0, PROMPT, greedy(12))
    handle.notify_once(lambda: "nonsense")  # type: ignore[arg-type, return-value]
    assert len(tokens_of(handle)) == 12


def test_a_slow_notification_holds_up_the_thread_that_steps(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    begun, end = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert end.wait(LONG_ENOUGH)

    first = batching.add_request(0, PROMPT, greedy(12))
    first.notify_once(wait)
    stepping = threading.Thread(target=lambda: tokens_of(first))
    stepping.start()
    assert begun.wait(LONG_ENOUGH)
    # It holds no lock: requests are taken, and steps are made by whoever makes them.
    second = batching.add_request(1, PROMPT, greedy(12))
    for _ in range(20):
        batching.step()
    assert len(second.read_available()[0].generated_ids) == 12
    end.set()
    stepping.join(LONG_ENOUGH)
    assert not stepping.is_alive()


def test_a_notification_may_generate(batching: pagewheel.ContinuousBatchingPipeline) -> None:
    inner: list[list[int]] = []
    done = threading.Event()

    def generate() -> None:
        inner.append(batching.generate([PROMPT], greedy(12))[0].m_generation_ids[0])
        done.set()

    handle = batching.add_request(0, PROMPT, greedy(12))
    handle.notify_once(generate)
    tokens = tokens_of(handle)
    assert done.wait(LONG_ENOUGH)
    assert inner == [tokens]


# ---- Eviction policies


class Acting(DropOldest):
    """Drops the oldest, or does as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[pagewheel.EvictionView, int], Any] | None = None

    def drop(self, view: pagewheel.EvictionView, count: int) -> Any:
        usual = super().drop(view, count)
        return self.answer(view, count) if self.answer else usual


@pytest.fixture(scope="module", params=[False, True], ids=["stepped", "started"])
def evicting(
    request: pytest.FixtureRequest, tiny_folder: Path
) -> Iterator[tuple[pagewheel.ContinuousBatchingPipeline, Acting]]:
    policy = Acting()
    config = pagewheel.CacheEvictionConfig(32, 32, 128, policy=policy, apply_rotation=True)
    pipeline = batching_pipeline(
        tiny_folder, num_kv_blocks=60, use_cache_eviction=True, cache_eviction_config=config
    )
    if request.param:
        pipeline.start()
    yield pipeline, policy
    pipeline.stop()


def fail(view: pagewheel.EvictionView, count: int) -> None:
    raise OwnError("mine")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fail, "OwnError: mine"),
        (lambda view, count: None, "not iterable"),
        (lambda view, count: "a", r"drop\(\) must return indices, got 'a'"),
        (lambda view, count: [2**70], r"drop\(\) must return indices, got 1180591620717411303424"),
        (lambda view, count: [10**6] * count, "named unit 1000000; allowed"),
    ],
)
def test_a_policy_that_fails_ends_its_request_alone(
    evicting: tuple[pagewheel.ContinuousBatchingPipeline, Acting], answer: Any, message: str
) -> None:
    pipeline, policy = evicting
    expected = tokens_of(pipeline.add_request(0, LONG, greedy(40)))
    policy.answer = answer
    within_budget = pipeline.add_request(1, LONG, greedy(20))
    with pytest.raises(RuntimeError, match=message):
        tokens_of(pipeline.add_request(2, LONG, greedy(40)))
    assert tokens_of(within_budget) == expected[:20]
    policy.answer = None
    assert tokens_of(pipeline.add_request(3, LONG, greedy(40))) == expected
    assert pipeline.get_statistics().num_used_blocks == 0


def test_a_slow_policy_holds_up_the_step_but_not_those_who_ask_for_one(
    evicting: tuple[pagewheel.ContinuousBatchingPipeline, Acting],
) -> None:
    pipeline, policy = evicting
    expected = tokens_of(pipeline.add_request(0, LONG, greedy(40)))
    others: list[pagewheel.GenerationHandle] = []

    def add() -> None:
        others.append(pipeline.add_request(2, LONG, greedy(40)))
        pipeline.add_request(3, LONG, greedy(40)).cancel()

    def wait_for_another_thread() -> None:
        thread = threading.Thread(target=add)
        thread.start()
        thread.join(LONG_ENOUGH)

    policy.asked = called_once(wait_for_another_thread)  # type: ignore[assignment]
    assert tokens_of(pipeline.add_request(1, LONG, greedy(40))) == expected
    assert tokens_of(others[0]) == expected


def test_a_policy_that_generates_is_told_that_it_cannot(
    evicting: tuple[pagewheel.ContinuousBatchingPipeline, Acting],
) -> None:
    pipeline, policy = evicting
    told: list[str] = []

    def generate() -> None:
        for work in (lambda: pipeline.generate([PROMPT], greedy(3)), pipeline.step):
            try:
                work()
            except RuntimeError as error:
                told.append(str(error))

    policy.asked = called_once(generate)  # type: ignore[assignment]
    assert len(tokens_of(pipeline.add_request(1, LONG, greedy(40)))) == 40
    assert len(told) == 2
    assert "an eviction policy or a logits processor cannot generate" in told[0]


def test_what_a_policy_observes_is_told_where_it_is_wrong(tiny_folder: Path) -> None:
    class Observing(DropOldest):
        def __init__(self, answer: object) -> None:
            super().__init__()
            self.answer = answer

        def observed(self) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    def make(answer: object) -> None:
        config = pagewheel.CacheEvictionConfig(32, 32, 128, policy=Observing(answer))
        batching_pipeline(tiny_folder, use_cache_eviction=True, cache_eviction_config=config)

    for answer in ("nonsense", None, 3):
        with pytest.raises(TypeError, match=r"observed\(\) must return ObservedQueries, got "):
            make(answer)
    with pytest.raises(OwnError, match="mine"):
        make(OwnError("mine"))


# ---- async for


def test_what_an_async_loop_raises_ends_the_loop_alone(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    batching.start()

    async def main() -> list[int]:
        handle = batching.add_request(0, PROMPT, greedy(40))
        with pytest.raises(OwnError):
            async for _ in handle:
                raise OwnError
        assert handle.get_status() != pagewheel.GenerationStatus.CANCEL
        before = [token for output in handle.outputs_so_far() for token in output.generated_ids]
        async for _ in handle:  # it goes on
            pass
        tokens = handle.outputs_so_far()[0].generated_ids
        assert tokens[: len(before)] == before
        return tokens

    assert len(asyncio.run(main())) == 40


def test_a_slow_async_loop_gets_every_token_in_larger_pieces(
    batching: pagewheel.ContinuousBatchingPipeline,
) -> None:
    batching.start()

    async def main() -> list[list[int]]:
        pieces = []
        running = pagewheel.GenerationStatus.RUNNING
        handle = batching.add_request(0, PROMPT, greedy(40))
        async for outputs in handle:
            pieces.append(outputs[0].generated_ids)
            # The pipeline does not wait.
            await eventually_in_loop(lambda: handle.get_status() != running)
        return pieces

    pieces = asyncio.run(main())
    assert len(pieces) <= 2
    assert [token for piece in pieces for token in piece] == tokens_of(
        batching.add_request(1, PROMPT, greedy(40))
    )


def test_an_async_loop_may_generate(batching: pagewheel.ContinuousBatchingPipeline) -> None:
    batching.start()

    async def main() -> tuple[list[int], list[int]]:
        handle = batching.add_request(0, PROMPT, greedy(12))
        async for _ in handle:
            inner = batching.generate([PROMPT], greedy(12))[0].m_generation_ids[0]
            beside = await asyncio.to_thread(batching.generate, [PROMPT], greedy(12))
            assert beside[0].m_generation_ids[0] == inner
        return inner, handle.outputs_so_far()[0].generated_ids

    inner, outer = asyncio.run(main())
    assert inner == outer


# ---- Handles that are dropped


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.parametrize("started", [False, True], ids=["stepped", "started"])
def test_ten_thousand_dropped_handles_leave_nothing(tiny_folder: Path, started: bool) -> None:
    """Dropped unread, half read, with a notification pending, and out of an async loop."""
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=200, max_num_seqs=16)
    expected = tokens_of(pipeline.add_request(0, PROMPT, greedy(30)))
    if started:
        pipeline.start()

    async def begin_to_wait(handle: pagewheel.GenerationHandle) -> None:
        task = asyncio.ensure_future(anext(handle.outputs(with_text=True)))
        await asyncio.sleep(0)
        task.cancel()

    def drop(number: int, count: int) -> None:
        for i in range(number, number + count):
            handle = pipeline.add_request(i, [10 + i % 50, 20, 30], greedy(30))
            if i % 4 == 1:
                handle.notify_once(lambda handle=handle: None)
            elif i % 40 == 2:
                handle.read(with_text=True)
            elif i % 40 == 3:
                asyncio.run(begin_to_wait(handle))
            del handle
            if not started and i % 50 == 49:
                pipeline.step()
        while pipeline.has_non_finished_requests():
            pipeline.step()
        gc.collect()

    drop(0, 2000)
    before = resident_megabytes()
    drop(2000, 10_000)
    assert resident_megabytes() - before < 8  # 0.8 KB each
    statistics = pipeline.get_statistics()
    assert statistics.num_requests == statistics.num_used_blocks == 0
    assert statistics.num_free_blocks == statistics.num_blocks == 200
    assert tokens_of(pipeline.add_request(0, PROMPT, greedy(30))) == expected
    pipeline.stop()
