"""Every public call from every callback, and every two of them from two threads.

    python -m call_fuzz MODEL callbacks
    python -m call_fuzz MODEL threads [--seconds N] [--seed N]

A call may work or raise an Exception that says why; a hang ends the program with a traceback of all
threads, and afterwards the pipeline must answer as it did before. Run it as a child: what it looks
for is crashes.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import random
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pagewheel

HANG_SECONDS = 30.0
PROMPT = [10, 20, 30]
ANSWER = pagewheel.GenerationConfig(max_new_tokens=4, ignore_eos=True)
# More tokens than the budget of the eviction holds.
MANY_TOKENS = pagewheel.GenerationConfig(max_new_tokens=200, ignore_eos=True)


class DropOldest(pagewheel.EvictionPolicy):
    """Tells the test whenever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Callable[[], None] = lambda: None

    def drop(self, view: pagewheel.EvictionView, count: int) -> list[int]:
        self.asked()
        return list(range(view.first_unit, view.first_unit + count))


@dataclass
class World:
    """What calls are made on. The pipeline evicts by a policy of ours."""

    model: Path
    folder: Path
    policy: DropOldest = field(default_factory=DropOldest)

    def __post_init__(self) -> None:
        scheduler = pagewheel.SchedulerConfig()
        scheduler.num_kv_blocks = 60
        scheduler.enable_prefix_caching = True
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = pagewheel.CacheEvictionConfig(
            32, 32, 128, policy=self.policy, apply_rotation=True
        )
        self.pipeline = pagewheel.ContinuousBatchingPipeline(self.model, scheduler)
        self.llm = pagewheel.LLMPipeline(self.model, scheduler_config=scheduler)
        self.tokenizer = self.llm.get_tokenizer()
        self.cache = self.pipeline.get_prefix_cache()
        self.streamer = pagewheel.TextStreamer(self.tokenizer, lambda text: None)
        self.history = pagewheel.ChatHistory([{"role": "user", "content": "Hello"}])
        self.handle = self.pipeline.add_request(0, PROMPT, ANSWER)
        self.drain()
        self.expected = self.answer()

    def answer(self) -> list[int]:
        return self.pipeline.generate([PROMPT], ANSWER)[0].m_generation_ids[0]

    def drain(self) -> None:
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()

    def check(self) -> None:
        """All is as before, and nothing is left."""
        self.policy.asked = lambda: None
        self.pipeline.stop()
        self.llm.finish_chat()
        self.drain()
        self.cache.unpin(PROMPT)
        self.tokenizer.set_chat_template(self.tokenizer.get_original_chat_template())
        self.history.set_messages([{"role": "user", "content": "Hello"}])
        assert self.answer() == self.expected
        assert self.pipeline.get_statistics().num_used_blocks == 0


def cancelled(world: World) -> None:
    world.pipeline.add_request(next_id(), PROMPT, ANSWER).cancel()


_ids = iter(range(100, sys.maxsize))


def next_id() -> int:
    return next(_ids)


async def _collect(outputs: AsyncIterable[object]) -> None:
    async for _ in outputs:
        pass


Call = Callable[[World], object]
# Of each class all public methods: a new one must get its line.
CALLS: dict[type, dict[str, Call]] = {
    pagewheel.ContinuousBatchingPipeline: {
        "add_request": cancelled,
        "generate": lambda w: w.pipeline.generate([PROMPT], ANSWER),
        "get_cache_view": lambda w: w.pipeline.get_cache_view(2),
        "get_config": lambda w: w.pipeline.get_config(),
        "get_metrics": lambda w: w.pipeline.get_metrics(),
        "get_prefix_cache": lambda w: w.pipeline.get_prefix_cache(),
        "get_statistics": lambda w: w.pipeline.get_statistics(),
        "get_tokenizer": lambda w: w.pipeline.get_tokenizer(),
        "finish_chat": lambda w: w.pipeline.finish_chat(),
        "start_chat": lambda w: w.pipeline.start_chat(),
        "has_non_finished_requests": lambda w: w.pipeline.has_non_finished_requests(),
        "start": lambda w: w.pipeline.start(),
        "step": lambda w: w.pipeline.step(),
        "stop": lambda w: w.pipeline.stop(),
    },
    pagewheel.LLMPipeline: {
        "finish_chat": lambda w: w.llm.finish_chat(),
        "generate": lambda w: w.llm.generate("Hello", ANSWER),
        "get_generation_config": lambda w: w.llm.get_generation_config(),
        "get_metrics": lambda w: w.llm.get_metrics(),
        "get_prefix_cache": lambda w: w.llm.get_prefix_cache().num_tokens(),
        "get_statistics": lambda w: w.llm.get_statistics(),
        "get_tokenizer": lambda w: w.llm.get_tokenizer(),
        "set_generation_config": lambda w: w.llm.set_generation_config(ANSWER),
        "start_chat": lambda w: w.llm.start_chat(),
        "__call__": lambda w: w.llm("Hello", ANSWER, lambda text: None),
    },
    pagewheel.GenerationHandle: {
        "can_read": lambda w: w.handle.can_read(),
        "can_wait": lambda w: w.handle.can_wait(),
        "cancel": lambda w: w.handle.cancel(),
        "drop": lambda w: w.handle.drop(),
        "get_perf_metrics": lambda w: w.handle.get_perf_metrics(),
        "get_status": lambda w: w.handle.get_status(),
        "notify_once": lambda w: w.handle.notify_once(lambda: None),
        "outputs": lambda w: asyncio.run(_collect(w.handle.outputs(with_text=True))),
        "read": lambda w: w.handle.read(),
        "read ": lambda w: w.handle.read(with_text=True),
        "outputs_so_far": lambda w: w.handle.outputs_so_far(with_text=True),
        "read_available": lambda w: w.handle.read_available(with_text=True),
        "read_all": lambda w: w.handle.read_all(),
        "read_all ": lambda w: w.handle.read_all(with_text=True),
        "stop": lambda w: w.handle.stop(),
        "wait": lambda w: w.handle.wait(),
        "__aiter__": lambda w: asyncio.run(_collect(w.handle)),
    },
    pagewheel.PrefixCache: {
        "clear": lambda w: w.cache.clear(),
        "load": lambda w: w.cache.load(w.folder / "prefixes"),
        "num_tokens": lambda w: w.cache.num_tokens(),
        "num_tokens_by_salt": lambda w: w.cache.num_tokens_by_salt(),
        "pin": lambda w: w.cache.pin(PROMPT),
        "save": lambda w: w.cache.save(w.folder / "prefixes"),
        "unpin": lambda w: w.cache.unpin(PROMPT),
    },
    pagewheel.Tokenizer: {
        "apply_chat_template": lambda w: w.tokenizer.apply_chat_template(w.history, True),
        "chat_template": lambda w: w.tokenizer.chat_template,
        "decode": lambda w: w.tokenizer.decode(PROMPT),
        "encode": lambda w: w.tokenizer.encode("Hello"),
        "supports_paired_input": lambda w: w.tokenizer.supports_paired_input(),
        "get_bos_token": lambda w: w.tokenizer.get_bos_token(),
        "get_bos_token_id": lambda w: w.tokenizer.get_bos_token_id(),
        "get_eos_token": lambda w: w.tokenizer.get_eos_token(),
        "get_eos_token_id": lambda w: w.tokenizer.get_eos_token_id(),
        "get_original_chat_template": lambda w: w.tokenizer.get_original_chat_template(),
        "get_pad_token": lambda w: w.tokenizer.get_pad_token(),
        "get_pad_token_id": lambda w: w.tokenizer.get_pad_token_id(),
        "get_vocab": lambda w: w.tokenizer.get_vocab(),
        "get_vocab_vector": lambda w: w.tokenizer.get_vocab_vector(),
        "set_chat_template": lambda w: w.tokenizer.set_chat_template("{{ messages[0].content }}"),
    },
    pagewheel.TextStreamer: {
        "write": lambda w: w.streamer.write(PROMPT),
        "end": lambda w: w.streamer.end(),
        "__init__": lambda w: w.pipeline.generate([PROMPT], ANSWER, w.streamer),
    },
    pagewheel.ChatHistory: {
        "append": lambda w: w.history.append({"role": "user", "content": "more"}),
        "clear": lambda w: w.history.clear(),
        "get_extra_context": lambda w: w.history.get_extra_context(),
        "get_messages": lambda w: w.history.get_messages(),
        "get_tools": lambda w: w.history.get_tools(),
        "pop": lambda w: w.history.pop(),
        "set_extra_context": lambda w: w.history.set_extra_context({"a": 1}),
        "set_messages": lambda w: w.history.set_messages([]),
        "set_tools": lambda w: w.history.set_tools([{"name": "tool"}]),
        "__init__": lambda w: w.pipeline.generate([w.history], ANSWER),
    },
}


def all_calls() -> dict[str, Call]:
    return {f"{t.__name__}.{n}": call for t, calls in CALLS.items() for n, call in calls.items()}


def missing_calls() -> list[str]:
    """Public methods without a line above."""
    return [
        f"{each.__name__}.{name}"
        for each, calls in CALLS.items()
        for name in dir(each)
        if not name.startswith("_") and name not in calls
    ]


# ---- Callbacks: each runs `call` in a moment of its own.


class Writes(pagewheel.StreamerBase):
    def __init__(self, write: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__()
        self._write, self._end = write, end

    def write(self, token: int | list[int]) -> None:
        self._write()

    def end(self) -> None:
        self._end()


class Finalized:
    """A callback that acts when it is let go."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __call__(self) -> None:
        pass

    def __del__(self) -> None:
        self._act()


def nothing() -> None:
    pass


def in_text_callback(world: World, call: Callable[[], None]) -> None:
    world.pipeline.generate([PROMPT], ANSWER, lambda text: call())


def in_write(world: World, call: Callable[[], None]) -> None:
    world.pipeline.generate([PROMPT], ANSWER, Writes(call, nothing))


def in_end(world: World, call: Callable[[], None]) -> None:
    world.pipeline.generate([PROMPT], ANSWER, Writes(nothing, call))


def in_chat(world: World, call: Callable[[], None]) -> None:
    world.llm.start_chat()
    world.llm.generate("Hello", ANSWER, lambda text: call())


def in_streamer_of_a_started_pipeline(world: World, call: Callable[[], None]) -> None:
    world.pipeline.start()
    world.pipeline.generate([PROMPT], ANSWER, lambda text: call())


def in_notify_of_a_caller(world: World, call: Callable[[], None]) -> None:
    world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
    world.handle.notify_once(call)
    world.drain()


def in_notify_of_generate(world: World, call: Callable[[], None]) -> None:
    world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
    world.handle.notify_once(call)
    world.answer()


@contextmanager
def awaited(call: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """The call, for another thread, and in the end a wait until it was made."""
    called = threading.Event()

    def act() -> None:
        call()
        called.set()

    yield act
    assert called.wait(HANG_SECONDS)


def in_notify_of_the_thread(world: World, call: Callable[[], None]) -> None:
    with awaited(call) as act:
        world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
        world.handle.notify_once(act)
        world.pipeline.start()


def in_notify_at_once(world: World, call: Callable[[], None]) -> None:
    world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
    world.drain()
    world.handle.notify_once(call)


def in_finalizer_of_a_callback(world: World, call: Callable[[], None]) -> None:
    world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
    world.handle.notify_once(Finalized(call))
    world.drain()


def in_policy_of_a_caller(world: World, call: Callable[[], None]) -> None:
    world.policy.asked = call
    world.handle = world.pipeline.add_request(next_id(), PROMPT, MANY_TOKENS)
    world.drain()


def in_policy_of_the_thread(world: World, call: Callable[[], None]) -> None:
    with awaited(call) as world.policy.asked:
        world.handle = world.pipeline.add_request(next_id(), PROMPT, MANY_TOKENS)
        world.pipeline.start()


def _with_processor(call: Callable[[], None]) -> pagewheel.GenerationConfig:
    config = pagewheel.GenerationConfig(max_new_tokens=4, ignore_eos=True)
    config.logits_processors = [lambda token_ids, logits: call()]
    return config


def in_logits_processor_of_a_caller(world: World, call: Callable[[], None]) -> None:
    world.handle = world.pipeline.add_request(next_id(), PROMPT, _with_processor(call))
    world.drain()


def in_logits_processor_of_the_thread(world: World, call: Callable[[], None]) -> None:
    with awaited(call) as act:
        world.handle = world.pipeline.add_request(next_id(), PROMPT, _with_processor(act))
        world.pipeline.start()


def in_output_streamer(world: World, call: Callable[[], None]) -> None:
    streamer = pagewheel.OutputStreamer(lambda news: call())
    world.pipeline.generate([PROMPT, PROMPT], ANSWER, streamer)


def in_signal_handler(world: World, call: Callable[[], None]) -> None:
    called = threading.Event()

    def handle(number: int, frame: object) -> None:
        call()
        called.set()

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while not called.is_set():  # one answer may end before the signal comes
        world.pipeline.generate([PROMPT], MANY_TOKENS)


CALLBACKS: list[Callable[[World, Callable[[], None]], None]] = [
    in_text_callback,
    in_write,
    in_end,
    in_chat,
    in_streamer_of_a_started_pipeline,
    in_notify_of_a_caller,
    in_notify_of_generate,
    in_notify_of_the_thread,
    in_notify_at_once,
    in_finalizer_of_a_callback,
    in_policy_of_a_caller,
    in_policy_of_the_thread,
    in_logits_processor_of_a_caller,
    in_logits_processor_of_the_thread,
    in_output_streamer,
    in_signal_handler,
]


@contextmanager
def no_hang(what: str) -> Iterator[None]:
    """Ends the program, and says where it was, if the block takes too long."""
    print(what, flush=True)
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def fuzz_callbacks(world: World) -> int:
    """How many calls were made."""
    count = 0
    for callback in CALLBACKS:
        for name, call in all_calls().items():
            outcomes: list[str] = []

            def once(call: Call = call, outcomes: list[str] = outcomes) -> None:
                if outcomes:
                    return
                outcomes.append("running")
                try:
                    call(world)
                    outcomes[0] = "works"
                except Exception as error:
                    assert str(error), f"{error!r} says nothing"
                    outcomes[0] = str(error)

            with no_hang(f"{name} {callback.__name__}"):
                callback(world, once)
                world.check()
            assert outcomes and outcomes[0] != "running", outcomes
            count += 1
    return count


def fuzz_threads(world: World, most_pairs: int, seed: int) -> int:
    """How many pairs were run, drawn at random: `most_pairs`, or all where there are fewer."""
    calls = all_calls()
    calls["GenerationHandle.wait"] = lambda w: w.handle.wait(0.01)  # perhaps nobody steps
    calls["GenerationHandle.__aiter__"] = lambda w: asyncio.run(
        asyncio.wait_for(_collect(w.handle), 0.01)
    )
    calls["GenerationHandle.outputs"] = lambda w: asyncio.run(
        asyncio.wait_for(_collect(w.handle.outputs(with_text=True)), 0.01)
    )
    names = list(calls)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
    rng = random.Random(seed)
    rng.shuffle(pairs)
    for pair in pairs[:most_pairs]:
        world.handle = world.pipeline.add_request(next_id(), PROMPT, ANSWER)
        if rng.random() < 0.5:
            world.pipeline.start()

        silent: list[str] = []

        def work(name: str, silent: list[str] = silent) -> None:
            for _ in range(2):
                try:
                    calls[name](world)
                except Exception as error:
                    if not str(error) and not isinstance(error, TimeoutError):
                        silent.append(repr(error))

        with no_hang(f"{pair[0]} beside {pair[1]}"):
            threads = [threading.Thread(target=work, args=(name,)) for name in pair]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not silent, silent
            world.check()
    return len(pairs[:most_pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("kind", choices=("callbacks", "threads"))
    parser.add_argument("--pairs", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    assert not missing_calls(), missing_calls()
    with tempfile.TemporaryDirectory() as folder:
        world = World(arguments.model, Path(folder))
        if arguments.kind == "callbacks":
            count = fuzz_callbacks(world)
        else:
            count = fuzz_threads(world, arguments.pairs, arguments.seed)
    print(f"{count} done")


if __name__ == "__main__":
    main()
