"""Requests from many threads and tasks: queue, priorities, deadlines, a thread that steps."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import batching_pipeline, drain, greedy

import pagewheel

pytestmark = pytest.mark.all_cores
make_pipeline = functools.partial(batching_pipeline, num_kv_blocks=60, max_num_batched_tokens=128)
Status = pagewheel.GenerationStatus
BLOCK = 32


@pytest.fixture(scope="module")
def queueing(smollm2_folder: Path) -> pagewheel.ContinuousBatchingPipeline:
    return make_pipeline(smollm2_folder, max_num_seqs=1, max_queue=3)


@pytest.fixture(scope="module")
def served(smollm2_folder: Path) -> Iterator[pagewheel.ContinuousBatchingPipeline]:
    """It steps by itself."""
    pipeline = make_pipeline(smollm2_folder)
    pipeline.start()
    yield pipeline
    pipeline.stop()


def test_a_full_queue_refuses_with_the_numbers(
    queueing: pagewheel.ContinuousBatchingPipeline,
) -> None:
    handles = [queueing.add_request(0, "One", greedy(4))]
    queueing.step()  # it is begun, and does not wait any more
    handles += [queueing.add_request(i, "Two", greedy(2)) for i in (1, 2, 3)]
    assert queueing.get_statistics().num_queued == 3
    with pytest.raises(
        pagewheel.QueueFullError, match="3 requests wait already, and max_queue is 3"
    ):
        queueing.add_request(4, "Three", greedy(2))
    handles[2].cancel()
    queueing.step()
    handles.append(queueing.add_request(4, "Three", greedy(2)))
    drain(queueing)
    assert [handle.get_status() for handle in handles] == [
        Status.FINISHED,
        Status.FINISHED,
        Status.CANCEL,
        Status.FINISHED,
        Status.FINISHED,
    ]


def test_priorities_are_served_first(queueing: pagewheel.ContinuousBatchingPipeline) -> None:
    handles = [
        queueing.add_request(i, "One", greedy(2, priority=p)) for i, p in enumerate((0, 0, 5))
    ]
    order: list[int] = []
    while queueing.has_non_finished_requests():
        queueing.step()
        for i, handle in enumerate(handles):
            if i not in order and handle.get_status() == Status.FINISHED:
                order.append(i)
    assert order == [2, 0, 1]


def test_a_request_ends_at_its_deadline_with_what_there_is(
    queueing: pagewheel.ContinuousBatchingPipeline,
) -> None:
    running = queueing.add_request(0, "One", greedy(1000, timeout=0.3))
    waiting = queueing.add_request(1, "Two", greedy(3, timeout=0.01))
    drain(queueing)
    assert running.get_status() == waiting.get_status() == Status.TIMEOUT
    assert 0 < len(running.read_all()[0].generated_ids) < 1000
    assert waiting.read_all() == []
    assert queueing.get_metrics().cache_usage == 0


def test_stop_gives_its_reason_and_drop_leaves_nothing_to_read(
    queueing: pagewheel.ContinuousBatchingPipeline,
) -> None:
    for ends in ("stop", "drop"):
        handle = queueing.add_request(0, "One", greedy(50))
        for _ in range(3):
            queueing.step()
        if ends == "stop":
            handle.stop(pagewheel.GenerationFinishReason.STOP)
        else:
            handle.drop()
        queueing.step()
        assert handle.get_status() == (Status.STOP if ends == "stop" else Status.CANCEL)
        assert not handle.can_read()
        assert (handle.read_available() != {}) == (ends == "stop")
        reason = handle.outputs_so_far()[0].finish_reason
        assert (reason == pagewheel.GenerationFinishReason.STOP) == (ends == "stop")


def test_statistics_add_up(queueing: pagewheel.ContinuousBatchingPipeline) -> None:
    before = queueing.get_statistics().all_steps.num_tokens
    handles = [queueing.add_request(i, list(range(100, 140)), greedy(5)) for i in range(2)]
    queueing.step()
    statistics = queueing.get_statistics()
    assert (statistics.num_running, statistics.num_queued, statistics.num_preempted) == (1, 1, 0)
    assert (statistics.num_used_blocks, statistics.num_cached_blocks) == (2, 0)
    assert statistics.num_free_blocks == statistics.num_blocks - 2 == 58
    step = statistics.latest_step
    assert (step.num_sequences, step.num_tokens, step.num_generated_tokens) == (1, 40, 1)
    assert step.infer_time > step.schedule_time > 0
    assert step.fill_time > 0
    assert step.sampling_time > 0
    assert "1 running, 1 queued" in repr(statistics)
    drain(queueing)
    assert queueing.get_statistics().all_steps.num_tokens == before + 2 * (40 + 4)
    assert [len(handle.read_all()[0].generated_ids) for handle in handles] == [5, 5]


def test_statistics_are_printed_every_n_steps(
    smollm2_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = make_pipeline(smollm2_folder, statistics_interval=3)
    handle = pipeline.add_request(0, "One", greedy(7))
    drain(pipeline)
    assert handle.get_status() == Status.FINISHED
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("pagewheel")]
    assert [line.split(":")[0] for line in lines] == ["pagewheel step 3", "pagewheel step 6"]


def test_async_iteration_gives_every_token_once(
    served: pagewheel.ContinuousBatchingPipeline,
) -> None:
    async def collect(handle: pagewheel.GenerationHandle) -> list[int]:
        return [token async for outputs in handle for token in outputs[0].generated_ids]

    async def main() -> list[list[int]]:
        handles = [served.add_request(i, "Once upon a time", greedy(5 + i)) for i in range(8)]
        return await asyncio.gather(*(collect(handle) for handle in handles))

    collected = asyncio.run(main())
    assert [len(tokens) for tokens in collected] == list(range(5, 13))
    assert all(longer[:5] == collected[0] for longer in collected)


def test_async_iteration_gives_every_piece_of_text_once(
    served: pagewheel.ContinuousBatchingPipeline,
) -> None:
    async def collect(handle: pagewheel.GenerationHandle) -> str:
        outputs = handle.outputs(with_text=True)
        return "".join([output[0].text async for output in outputs])

    async def main() -> list[str]:
        stops: list[set[str]] = [set(), {" the"}, {"zzz"}]
        handles = [
            served.add_request(i, "Once upon a time", greedy(20, stop_strings=stops[i % 3]))
            for i in range(6)
        ]
        texts = await asyncio.gather(*(collect(handle) for handle in handles))
        assert texts == [handle.outputs_so_far(with_text=True)[0].text for handle in handles]
        return texts

    texts = asyncio.run(main())
    assert texts[:3] == texts[3:]
    assert texts[0] == texts[2]
    assert texts[0]


def test_async_iteration_ends_with_cancel(served: pagewheel.ContinuousBatchingPipeline) -> None:
    async def main() -> int:
        handle = served.add_request(0, "Once", greedy(1500))
        count = 0
        async for _ in handle:
            count += 1
            if count == 3:
                handle.cancel()
        assert handle.get_status() == Status.CANCEL
        return count

    assert 3 <= asyncio.run(main()) < 1500


def test_generate_and_wait_work_while_a_thread_steps(
    served: pagewheel.ContinuousBatchingPipeline,
) -> None:
    expected = served.generate(["A list of"], greedy(6))[0].m_generation_ids
    results: list[list[str]] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(
                served.generate(["A list of"], greedy(6))[0].m_generation_ids
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    pieces: list[str] = []
    served.generate(["A list of"], greedy(6), pieces.append)
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
    assert "".join(pieces) == expected[0]
    handle = served.add_request(7, "A list of", greedy(3))
    while handle.get_status() == Status.RUNNING:
        assert handle.wait()
        handle.read()
    assert handle.wait(0)


def test_wait_gives_up_after_its_timeout(queueing: pagewheel.ContinuousBatchingPipeline) -> None:
    handle = queueing.add_request(0, "One", greedy(1))
    assert not handle.wait(0.05)  # nobody steps
    drain(queueing)
    assert handle.wait(0.05)


def test_requests_of_many_threads_are_served_while_a_thread_steps(
    served: pagewheel.ContinuousBatchingPipeline,
) -> None:
    counts: list[int] = []

    def work(first_id: int) -> None:
        for i in range(4):
            handle = served.add_request(first_id + i, "Many", greedy(4))
            if i == 2:
                handle.cancel()
            while handle.get_status() == Status.RUNNING:
                handle.wait(1)
            if i != 2:
                counts.append(len(handle.read_all()[0].generated_ids))

    threads = [threading.Thread(target=work, args=(100 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [4] * 24
    assert served.get_metrics().requests == 0


def test_a_program_may_end_while_its_pipeline_steps(smollm2_folder: Path) -> None:
    program = """
import sys, pagewheel
scheduler = pagewheel.SchedulerConfig()
scheduler.num_kv_blocks = 40
pipeline = pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)
pipeline.start()
handle = pipeline.add_request(0, "Once", pagewheel.GenerationConfig(max_new_tokens=800))
handle.notify_once(lambda: None)
print(handle.wait())
"""
    run = subprocess.run(
        [sys.executable, "-c", program, str(smollm2_folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout.strip() == "True"


def test_memory_follows_the_blocks_in_use(smollm2_folder: Path) -> None:
    """A pool of 40 GB; 2,000 tokens in it cost about 90 MB (f32), which go back afterwards."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    pipeline = make_pipeline(smollm2_folder, num_kv_blocks=0, cache_size=40)
    pipeline.generate([[504] * 10], greedy(2))
    per_block = pipeline.get_metrics().cache_size_in_bytes / pipeline.get_statistics().num_blocks
    before = resident()
    handle = pipeline.add_request(0, [504] * 2000, greedy(3))
    while not handle.can_read():
        pipeline.step()
    used = pipeline.get_statistics().num_used_blocks
    assert used == -(-2000 // BLOCK)
    grown = resident() - before
    assert used * per_block <= grown < used * per_block + 60e6
    drain(pipeline)
    assert resident() - before < grown - 0.9 * used * per_block
