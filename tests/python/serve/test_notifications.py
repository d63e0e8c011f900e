"""A byte in a pipe tells the loop of new outputs, however many requests have some."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import num_descriptors

import pagewheel
from pagewheel._pagewheel import PipeNotifier
from pagewheel.serve.models.notifications import Notifications

TOKENS = 40


@pytest.fixture(scope="module")
def stepped(tiny_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    """Whose steps the tests make."""
    scheduler = pagewheel.SchedulerConfig()
    scheduler.num_kv_blocks = 200
    return pagewheel.ContinuousBatchingPipeline(tiny_folder, scheduler, "CPU")


@pytest.fixture
def tiny(
    stepped: pagewheel.ContinuousBatchingPipeline,
) -> Iterator[pagewheel.ContinuousBatchingPipeline]:
    yield stepped
    while stepped.has_non_finished_requests():
        stepped.step()


def add(
    tiny: pagewheel.ContinuousBatchingPipeline, count: int = 1
) -> list[pagewheel.GenerationHandle]:
    config = pagewheel.GenerationConfig(max_new_tokens=TOKENS, ignore_eos=True)
    return [tiny.add_request(number, [5 + number], config) for number in range(count)]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


def test_all_requests_of_a_step_ring_with_one_byte(
    tiny: pagewheel.ContinuousBatchingPipeline, pipe: tuple[int, int]
) -> None:
    notifier = PipeNotifier(pipe[1])
    handles = add(tiny, 20)
    for number, handle in enumerate(handles):
        notifier.notify_once(handle, number)
    assert notifier.take() == []
    tiny.step()
    assert os.read(pipe[0], 100) == b"\0"
    assert sorted(notifier.take()) == list(range(20))
    tiny.step()
    assert notifier.take() == []  # once, until it is expected again
    notifier.notify_once(handles[3], 33)  # there is something to read
    assert notifier.take() == [33]


def test_an_end_rings_at_the_end_alone(
    tiny: pagewheel.ContinuousBatchingPipeline, pipe: tuple[int, int]
) -> None:
    notifier = PipeNotifier(pipe[1])
    ended, cancelled = add(tiny, 2)
    notifier.notify_once(ended, 1, at_end=True)
    notifier.notify_once(cancelled, 2, at_end=True)
    for _ in range(TOKENS // 2):
        tiny.step()
    assert ended.can_read()
    assert notifier.take() == []
    cancelled.cancel()
    tiny.step()
    assert notifier.take() == [2]
    while tiny.has_non_finished_requests():
        tiny.step()
    assert notifier.take() == [1]
    notifier.notify_once(ended, 3, at_end=True)
    assert notifier.take() == [3]


def test_a_closed_notifier_writes_nothing(
    tiny: pagewheel.ContinuousBatchingPipeline, pipe: tuple[int, int]
) -> None:
    notifier = PipeNotifier(pipe[1])
    (handle,) = add(tiny)
    notifier.notify_once(handle, 1)
    notifier.close()
    tiny.step()
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


def test_whoever_waits_is_told_and_whoever_left_is_not(
    tiny: pagewheel.ContinuousBatchingPipeline,
) -> None:
    async def wait() -> None:
        notifications = Notifications()
        handles = add(tiny, 3)
        futures = [notifications.expect(handle) for handle in handles]
        futures[1].cancel()
        await asyncio.sleep(0)  # a round of the loop: nobody has stepped
        assert not futures[0].done()
        await asyncio.to_thread(tiny.step)
        await asyncio.wait_for(asyncio.gather(futures[0], futures[2]), 10)
        notifications.close()

    descriptors = num_descriptors()
    asyncio.run(wait())
    assert num_descriptors() == descriptors
