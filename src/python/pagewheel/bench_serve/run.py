"""Sends a load's requests when they are due and gathers what came of them."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

import aiohttp

from pagewheel.bench_serve.call import Call, Clock, Target, send
from pagewheel.bench_serve.workload import Conversation, Load, Workload, arrivals


@dataclass(frozen=True)
class Plan:
    """How much of a workload a load sends."""

    workload: Workload
    num_conversations: int
    max_tokens: int
    seed: int = 0
    think_seconds: float = 0.0  # between an answer and the next question


@dataclass
class Measured:
    """`calls` in the order in which they were sent; those that were cut off are not among them."""

    load: Load
    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    num_cut_off: int = 0
    is_partial: bool = False


async def measure(
    target: Target, plan: Plan, load: Load, number: int, stop: asyncio.Event
) -> Measured:
    """Runs load `number`, which has prompts of its own. `stop` ends it with what there is."""
    run = _Run(target, plan, load, f"{plan.seed}.{number}")
    return await run.run(stop)


async def warm_up(target: Target, plan: Plan, count: int) -> None:
    """Sends requests that are not measured, one by one. Raises RuntimeError if one fails."""
    run = _Run(target, plan, Load(concurrency=1), f"{plan.seed}.warm-up")
    measured = await run.run(asyncio.Event(), count)
    for call in measured.calls:
        if call.error is not None:
            raise RuntimeError(f"{target.path}: {call.error} {call.message}".rstrip())


class _Run:
    def __init__(self, target: Target, plan: Plan, load: Load, seed: str) -> None:
        self._target = target
        self._plan = plan
        self._load = load
        self._seed = seed
        self._measured = Measured(load)
        self._num_under_way = 0

    async def run(self, stop: asyncio.Event, count: int | None = None) -> Measured:
        count = self._plan.num_conversations if count is None else count
        found = list(itertools.islice(self._plan.workload.conversations(self._seed), count))
        timeout = aiohttp.ClientTimeout(total=self._target.timeout)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            self._clock = Clock()
            cpu = time.process_time()
            work = asyncio.ensure_future(self._everything(found))
            stopped = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
                self._measured.is_partial = not work.done()
                self._measured.num_cut_off = self._num_under_way
                self._measured.seconds = self._clock.now()
                self._measured.client_cpu_seconds = time.process_time() - cpu
                if work.done():
                    work.result()
            finally:
                work.cancel()
                stopped.cancel()
                await asyncio.wait((work, stopped))
        self._measured.calls.sort(key=lambda call: call.sent)
        return self._measured

    async def _everything(self, found: Sequence[Conversation]) -> None:
        if self._load.rate is not None:
            await self._as_they_arrive(found, self._load.rate)
        else:
            await self._at_once(found, self._load.concurrency or 1)

    async def _as_they_arrive(self, found: Sequence[Conversation], rate: float) -> None:
        moments = arrivals(rate, len(found), self._seed + ".arrivals")
        talks = (
            self._talk(number, conversation, moment)
            for number, (conversation, moment) in enumerate(zip(found, moments, strict=True))
        )
        await asyncio.gather(*talks)

    async def _at_once(self, found: Sequence[Conversation], concurrency: int) -> None:
        waiting = iter(enumerate(found))

        async def client() -> None:
            for number, conversation in waiting:
                await self._talk(number, conversation, self._clock.now())

        await asyncio.gather(*(client() for _ in range(concurrency)))

    async def _talk(self, number: int, conversation: Conversation, due: float) -> None:
        """Ends with the first question that is not answered."""
        await asyncio.sleep(due - self._clock.now())
        messages = (
            [{"role": "system", "content": conversation.system}] if conversation.system else []
        )
        for place, question in enumerate(conversation.questions):
            if place:
                due = self._clock.now() + self._plan.think_seconds
                await asyncio.sleep(self._plan.think_seconds)
            messages.append({"role": "user", "content": question})
            call = Call(number, place, due)
            body = self._target.body(messages, self._plan.max_tokens)
            self._num_under_way += 1
            await send(self._session, self._target, body, call, self._clock)
            self._num_under_way -= 1
            self._measured.calls.append(call)
            if call.error is not None:
                return
            messages.append({"role": "assistant", "content": call.text})


async def run_loads(
    target: Target,
    plan: Plan,
    loads: Sequence[Load],
    num_warm_up: int,
    done: Callable[[Measured], None],
) -> None:
    """Calls `done` after each load; the last one may be partial.

    Ctrl-C ends it with what there is; a second one ends it at once, as KeyboardInterrupt.
    """
    await warm_up(target, plan, num_warm_up)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(stop.set)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        for number, load in enumerate(loads):
            done(await measure(target, plan, load, number, stop))
            if stop.is_set():
                break
    finally:
        signal.signal(signal.SIGINT, before)
