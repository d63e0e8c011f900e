"""What callbacks, threads and forked children may do: everything, or they are told why not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from call_fuzz import DropOldest
from conftest import batching_pipeline, drain, greedy
from fuzzing import TIMES

import pagewheel
from pagewheel.async_outputs import AsyncOutputs

pytestmark = pytest.mark.all_cores
TOKENS = [10, 20, 30]


def run_program(program: str, *arguments: object, module: bool = False) -> str:
    """What it prints; a crash and a hang are failures."""
    run = subprocess.run(
        [sys.executable, "-m" if module else "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600 * TIMES,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert run.returncode == 0, (run.returncode, run.stdout[-500:], run.stderr[-3000:])
    return run.stdout


def evicting(
    folder: Path, policy: pagewheel.EvictionPolicy
) -> pagewheel.ContinuousBatchingPipeline:
    config = pagewheel.CacheEvictionConfig(32, 32, 128, policy=policy, apply_rotation=True)
    return batching_pipeline(
        folder, num_kv_blocks=60, use_cache_eviction=True, cache_eviction_config=config
    )


def test_every_public_call_from_every_callback_works_or_says_no(tiny_folder: Path) -> None:
    lines = run_program("call_fuzz", tiny_folder, "callbacks", module=True).splitlines()
    assert int(lines[-1].split()[0]) > 800


@pytest.mark.fuzz
def test_public_calls_may_meet_in_pairs(tiny_folder: Path) -> None:
    pairs = 150 * TIMES
    lines = run_program(
        "call_fuzz", tiny_folder, "threads", "--pairs", pairs, module=True
    ).splitlines()
    assert int(lines[-1].split()[0]) >= min(pairs, 1500)  # all of them are more


def test_a_callback_shared_by_threads_is_counted_right(tiny_folder: Path) -> None:
    """Calls that are refused as soon as they have it, beside a thread that holds it."""
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    refused = pagewheel.GenerationConfig(max_new_tokens=1, num_return_sequences=2, do_sample=True)
    over = threading.Event()

    def callback(text: str) -> None:
        pass

    def work() -> None:
        for _ in range(20_000):
            try:
                pipeline.generate([TOKENS], refused, callback)
            except ValueError:
                continue

    def hold() -> None:
        while not over.is_set():
            held = [callback] * 1000
            del held

    before = sys.getrefcount(callback)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        holding = threading.Thread(target=hold)
        for thread in (*threads, holding):
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        over.set()
        holding.join()
        sys.setswitchinterval(interval)
    assert sys.getrefcount(callback) == before


def test_one_streamer_serves_one_call_at_a_time(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    outcomes: list[str] = []

    def generate() -> None:
        try:
            pipeline.generate([TOKENS], greedy(8), streamer)
            outcomes.append("served")
        except RuntimeError as error:
            outcomes.append(str(error))

    def callback(text: str) -> None:
        threads = [threading.Thread(target=generate) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    streamer = pagewheel.TextStreamer(pipeline.get_tokenizer(), callback)
    generate()
    assert len(outcomes) > 3
    assert set(outcomes[:-1]) == {"the streamer is in use by another generate()"}
    assert outcomes[-1] == "served"


def test_ctrl_c_in_a_policy_reaches_the_program_and_costs_no_request(tiny_folder: Path) -> None:
    policy = DropOldest()
    pipeline = evicting(tiny_folder, policy)
    undisturbed = pipeline.generate([TOKENS], greedy(200))[0].m_generation_ids[0]
    asked: list[int] = []

    def interrupt() -> None:
        asked.append(0)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)

    policy.asked = interrupt
    handle = pipeline.add_request(0, TOKENS, greedy(200))
    with pytest.raises(KeyboardInterrupt):
        drain(pipeline)
    drain(pipeline)
    assert handle.get_status() == pagewheel.GenerationStatus.FINISHED
    assert handle.read_all()[0].generated_ids == undisturbed
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        pipeline.generate([TOKENS], greedy(200))
    assert pipeline.get_metrics().requests == 0


def test_a_policy_that_will_not_answer_for_ctrl_c_ends_its_request(tiny_folder: Path) -> None:
    class Stubborn(pagewheel.EvictionPolicy):
        def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
            raise KeyboardInterrupt

    pipeline = evicting(tiny_folder, Stubborn())
    handle = pipeline.add_request(0, TOKENS, greedy(200))
    with pytest.raises(KeyboardInterrupt):
        drain(pipeline)
    drain(pipeline)
    with pytest.raises(RuntimeError, match="policy failed: drop\\(\\) was interrupted twice"):
        handle.read_all()


def test_iterating_in_a_callback_of_the_own_thread_is_refused(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    other = pipeline.add_request(0, TOKENS, greedy(50))
    refused: list[str] = []

    async def collect() -> None:
        async for _ in other:
            pass

    def callback(text: str) -> None:
        try:
            asyncio.run(collect())
        except RuntimeError as error:
            refused.append(str(error))

    pipeline.generate([TOKENS], greedy(3), callback)
    assert refused
    assert "would wait for itself" in refused[0]
    drain(pipeline)


def test_a_program_may_drop_its_pipeline_in_a_callback_and_end(tiny_folder: Path) -> None:
    program = """
import sys, threading, pagewheel
scheduler = pagewheel.SchedulerConfig()
scheduler.num_kv_blocks = 60
pipelines = [pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)]
config = pagewheel.GenerationConfig(max_new_tokens=50, ignore_eos=True)
called = threading.Event()
def drop():
    pipelines.clear()
    called.set()
handle = pipelines[0].add_request(0, [10, 20, 30], config)
handle.notify_once(drop)
pipelines[0].start()
assert called.wait(60)
while handle.get_status() == pagewheel.GenerationStatus.RUNNING:
    handle.wait(1)
    handle.read()
print(handle.get_status())
"""
    assert run_program(program, tiny_folder).strip() == "GenerationStatus.CANCEL"


def test_a_child_of_a_process_that_has_loaded_nothing_makes_pipelines(tiny_folder: Path) -> None:
    program = """
import os, signal, sys, pagewheel
child = os.fork()
signal.alarm(60)
llm = pagewheel.LLMPipeline(sys.argv[1])
llm.generate("Hello", max_new_tokens=5)
print("made", flush=True)
if child != 0:
    assert os.waitpid(child, 0)[1] == 0
"""
    assert run_program(program, tiny_folder).split() == ["made", "made"]


@pytest.mark.parametrize("started", [False, True])
def test_a_forked_child_is_told_and_ends(tiny_folder: Path, started: bool) -> None:
    program = """
import os, signal, sys, pagewheel
scheduler = pagewheel.SchedulerConfig()
scheduler.num_kv_blocks = 60
pipeline = pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)
config = pagewheel.GenerationConfig(max_new_tokens=5, ignore_eos=True)
llm = pagewheel.LLMPipeline(sys.argv[1])
llm.generate("Hello", config)
if sys.argv[2] == "True":
    pipeline.start()
handle = pipeline.add_request(0, [10, 20, 30], config)
pipeline.generate([[10, 20, 30]], config)
child = os.fork()
if child == 0:
    signal.alarm(60)
    for call in (
        lambda: pipeline.generate([[10, 20, 30]], config),
        lambda: pipeline.add_request(1, [10, 20, 30], config),
        lambda: pipeline.step(),
        lambda: pipeline.start(),
        lambda: pipeline.get_metrics(),
        lambda: pipeline.has_non_finished_requests(),
        lambda: llm.generate("Hello", config),
        lambda: llm.get_tokenizer().encode("Hello"),
        lambda: handle.read(),
        lambda: handle.wait(),
        lambda: pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler),
        lambda: pagewheel.LLMPipeline(sys.argv[1]),
        lambda: pagewheel.Tokenizer(sys.argv[1]),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "fork() made of it" in str(error), error
        else:
            raise AssertionError("the call was not refused")
    sys.exit(7)  # with all of Python's and the libraries' goodbyes
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7, status
pipeline.stop()
print(len(pipeline.generate([[10, 20, 30]], config)[0].m_generation_ids[0]))
"""
    assert run_program(program, tiny_folder, started).strip() == "5"


def test_ctrl_c_is_no_crash_after_pipelines_went_in_the_order_they_came(tiny_folder: Path) -> None:
    program = """
import signal, sys, pagewheel
scheduler = pagewheel.SchedulerConfig()
scheduler.num_kv_blocks = 60
first = pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)
second = pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)
del first
del second
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run_program(program, tiny_folder).strip() == "interrupted"


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    "work",
    [
        "pipeline.generate([[10, 20, 30]], config)",
        "pipeline.generate([[10, 20, 30]], config, lambda text: None)",
        "pipeline.get_tokenizer().apply_chat_template([{'role': 'user', 'content': 'a'}], True)",
        "pipeline.add_request(next(ids), [10, 20, 30], config).wait(1)",
    ],
)
def test_a_program_may_end_under_a_daemon_thread(
    tiny_folder: Path, work: str, started: bool
) -> None:
    program = f"""
import itertools, sys, threading, time, pagewheel
scheduler = pagewheel.SchedulerConfig()
scheduler.num_kv_blocks = 60
pipeline = pagewheel.ContinuousBatchingPipeline(sys.argv[1], scheduler)
config = pagewheel.GenerationConfig(max_new_tokens=200, ignore_eos=True)
ids = itertools.count()
if sys.argv[2] == "True":
    pipeline.start()
begun = threading.Event()
def repeat():
    while True:
        {work}
        begun.set()
threading.Thread(target=repeat, daemon=True).start()
begun.wait(20)
time.sleep(0.1)
"""
    run_program(program, tiny_folder, started)


def test_ctrl_c_in_a_callback_reaches_the_program(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    handle = pipeline.add_request(0, TOKENS, greedy(20))
    handle.notify_once(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        drain(pipeline)
    drain(pipeline)
    assert len(handle.read_all()[0].generated_ids) == 20


def test_everybody_who_waits_for_a_handle_is_called(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    pipeline.start()

    async def main() -> tuple[list[int], list[int]]:
        handle = pipeline.add_request(0, TOKENS, greedy(150))
        called: list[int] = []
        handle.notify_once(lambda: called.append(1))

        async def collect() -> list[int]:
            return [token async for outputs in handle for token in outputs[0].generated_ids]

        both = await asyncio.wait_for(asyncio.gather(collect(), collect()), 60)
        return both[0] + both[1], called

    tokens, called = asyncio.run(main())
    assert len(tokens) == 150
    assert called == [1]
    pipeline.stop()


def test_whoever_gives_up_waiting_leaves_no_callbacks_behind(tiny_folder: Path) -> None:
    pipeline = batching_pipeline(tiny_folder, num_kv_blocks=60)
    handle = pipeline.add_request(0, TOKENS, greedy(3))

    class Counting:
        """The handle, with its callbacks counted."""

        calls = 0

        def __getattr__(self, name: str) -> object:
            Counting.calls += name == "notify_once"
            return getattr(handle, name)

    async def main() -> None:
        outputs = AsyncOutputs(Counting())  # type: ignore[arg-type]
        for _ in range(20):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(outputs), 0.001)
        pipeline.step()
        assert len((await anext(outputs))[0].generated_ids) == 1

    asyncio.run(main())
    assert Counting.calls == 1
    drain(pipeline)
