"""Takes the samples: workers that stay loaded, alternating rounds, a watch on the load."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load import Limits, Load, LoadWindow, quiet_problem
from benchmarks.peers import Peer
from benchmarks.peers.engine import Generated
from benchmarks.prompts import PromptSource
from benchmarks.rounds import Round, Sample, ScenarioResult, order_of
from benchmarks.scenarios import BATCH, LOAD, MEMORY_REQUESTS, Scenario, Task, WarmScenario
from benchmarks.worker_process import WorkerProcess

_FIRST_TOKEN = Task([[1, 2, 3, 4]], 1)
_QUIET_WINDOW_S = 0.5


class BusyError(RuntimeError):
    """The machine does other work."""


@dataclass(frozen=True)
class Plan:
    """How to measure. Times in seconds."""

    model: Path
    device: str
    rounds: int
    max_repeats: int = 2
    patience: float = 10.0
    timeout: float = 600.0
    limits: Limits = field(default_factory=Limits)


class Session(AbstractContextManager["Session"]):
    """All workers of a run; use as a context manager."""

    def __init__(self, plan: Plan, peers: Sequence[Peer], say: Callable[[str], None]) -> None:
        """`say` hears one line about each thing done."""
        self._plan = plan
        self._peers = {peer.name: peer for peer in peers}
        self._say = say
        self._workers: dict[str, WorkerProcess] = {}
        self._stack = ExitStack()
        self.settings: dict[str, dict[str, str]] = {}
        self.weight_bytes: dict[str, int] = {}

    def start(self, text: str) -> PromptSource:
        """Load every peer's model; the first peer's tokenizer makes the prompts of `text`."""
        for name, peer in self._peers.items():
            self._say(f"loading {name}")
            worker = self._stack.enter_context(WorkerProcess(peer, timeout=self._plan.timeout))
            self._workers[name] = worker
            answer = self._load(worker, self._plan.model)
            self.settings[name] = answer["settings"]
            self.weight_bytes[name] = answer["weight_bytes"]
        first = next(iter(self._workers.values()))
        self._source = PromptSource(first.request("encode", text=text)["ids"])
        return self._source

    def require_quiet(self) -> None:
        """Raises BusyError unless the machine falls quiet within the plan's patience."""
        problem = self._wait_for_quiet()
        if problem is not None:
            raise BusyError(problem)

    def run(self, scenario: Scenario) -> ScenarioResult:
        """All rounds of one scenario, disturbed ones repeated."""
        if isinstance(scenario, WarmScenario):
            for name in self._peers:
                self._say(f"{scenario.name}: warming up {name}")
                self._generate(self._workers[name], scenario.warm_up(self._source))
        result = ScenarioResult(scenario.name)
        for number in range(self._plan.rounds):
            for attempt in range(1 + self._plan.max_repeats):
                one = self._round(scenario, number, attempt)
                result.rounds.append(one)
                note = f" disturbed: {one.disturbed}" if one.disturbed else ""
                self._say(f"{scenario.name}: round {number + 1}/{self._plan.rounds}{note}")
                if one.disturbed is None:
                    break
        return result

    def _round(self, scenario: Scenario, number: int, attempt: int) -> Round:
        order = order_of(list(self._peers), number)
        samples: dict[str, Sample] = {}
        loads: dict[str, Load] = {}
        problems = []
        for name in order:
            problem = self._wait_for_quiet()
            window = LoadWindow(self._own_pids())
            samples[name] = self._sample(scenario, name)
            loads[name] = window.close()
            problem = f"before it, {problem}" if problem else None
            problem = problem or loads[name].disturbance(self._plan.limits)
            if problem is not None:
                problems.append(f"{name}: {problem}")
        return Round(number, attempt, order, samples, loads, "; ".join(problems) or None)

    def _sample(self, scenario: Scenario, name: str) -> Sample:
        if isinstance(scenario, WarmScenario):
            tasks = scenario.tasks(self._source)
            return scenario.sample(tasks, self._generate(self._workers[name], tasks))
        if scenario is LOAD:
            return self._load_sample(self._peers[name])
        return self._memory_sample(self._peers[name])

    def _load_sample(self, peer: Peer) -> Sample:
        """Seconds from starting a process to its first token, conversion included and not.

        The model file is in the page cache both times; the engine's own cache is
        an empty folder the first time.
        """
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder, "engine")
            cache.mkdir()
            user = str(Path(folder, "user"))
            environment = {"XDG_CACHE_HOME": user, "PAGEWHEEL_CACHE": user}
            first = self._time_to_first_token(peer, self._plan.model, environment)
            with self._cold(peer, environment) as worker:
                model = worker.request(
                    "prepare_cached_load", model=str(self._plan.model), cache=str(cache)
                )["model"]
            cached = self._time_to_first_token(peer, Path(model), environment)
        return {"first_time": first, "cached": cached}

    def _time_to_first_token(
        self, peer: Peer, model: Path, environment: Mapping[str, str]
    ) -> float:
        with self._cold(peer, environment) as worker:
            self._load(worker, model)
            self._generate(worker, [_FIRST_TOKEN])
            return worker.answered - worker.started

    def _memory_sample(self, peer: Peer) -> Sample:
        """MiB of a fresh process, its Python included."""
        with self._cold(peer, {}) as worker:
            self._load(worker, self._plan.model)
            self._generate(worker, [_FIRST_TOKEN])
            loaded = worker.request("memory")
            self._generate(worker, [BATCH.task(self._source, MEMORY_REQUESTS)])
            after = worker.request("memory")
        return {
            "after_load": loaded["now"],
            "peak_load": loaded["peak"],
            "peak_batch": after["peak"],
        }

    def _cold(self, peer: Peer, environment: Mapping[str, str]) -> WorkerProcess:
        return WorkerProcess(peer, timeout=self._plan.timeout, environment=environment)

    def _load(self, worker: WorkerProcess, model: Path) -> Any:
        return worker.request("load", model=str(model), device=self._plan.device)

    @staticmethod
    def _generate(worker: WorkerProcess, tasks: Sequence[Task]) -> list[Generated]:
        answer = worker.request("generate", tasks=[asdict(task) for task in tasks])
        return [Generated(**one) for one in answer["results"]]

    def _wait_for_quiet(self) -> str | None:
        """None once a window is quiet, else why none was within the plan's patience."""
        deadline = time.monotonic() + self._plan.patience
        while True:
            window = LoadWindow(self._own_pids())
            time.sleep(_QUIET_WINDOW_S)
            problem = quiet_problem(window.close(), self._plan.limits)
            if problem is None or time.monotonic() >= deadline:
                return problem

    def _own_pids(self) -> list[int]:
        return [os.getpid(), *(worker.pid for worker in self._workers.values())]

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
