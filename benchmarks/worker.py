"""The process that holds one engine: requests and answers are lines of JSON.

While it waits it blocks in a read and uses no CPU. Answers go to the standard
output the parent gave; whatever an engine prints goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from benchmarks.peers import load_engine
from benchmarks.peers.engine import Engine


def claim_stdout() -> TextIO:
    """A private handle on standard output, which from now on is standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout.flush()
    os.dup2(2, 1)
    return answers


def resident_mib(key: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process, MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def reset_peak() -> None:
    """Let VmHWM start again from VmRSS."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


class Worker:
    """Answers requests; each `do_*` is one operation."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def do_load(self, model: str, device: str) -> dict[str, Any]:
        started = time.monotonic()
        self._engine.load(Path(model), device)
        return {
            "seconds": time.monotonic() - started,
            "settings": self._engine.settings(),
            "weight_bytes": self._engine.weights(Path(model)).stat().st_size,
        }

    def do_encode(self, text: str) -> dict[str, Any]:
        return {"ids": self._engine.encode(text)}

    def do_generate(self, tasks: list[dict[str, Any]]) -> dict[str, Any]:
        return {"results": [asdict(self._engine.generate(**task)) for task in tasks]}

    def do_memory(self) -> dict[str, Any]:
        """Resident set now and its peak since the last call; starts a new peak."""
        answer = {"now": resident_mib("VmRSS"), "peak": resident_mib("VmHWM")}
        reset_peak()
        return answer

    def do_prepare_cached_load(self, model: str, cache: str) -> dict[str, Any]:
        return {"model": str(self._engine.prepare_cached_load(Path(model), Path(cache)))}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request; an exception becomes an "error" answer."""
        arguments = dict(request)
        try:
            operation = getattr(self, f"do_{arguments.pop('op')}")
            result: dict[str, Any] = operation(**arguments)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        # CLOCK_MONOTONIC is one clock for all processes: the parent subtracts its own reading.
        return {"result": result, "at": time.monotonic()}


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine")
    parser.add_argument("options", help="JSON object")
    arguments = parser.parse_args()
    answers = claim_stdout()
    worker: Worker | None = None
    for line in sys.stdin:
        if worker is None:
            try:
                worker = Worker(load_engine(arguments.engine)(json.loads(arguments.options)))
            except Exception as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
                return
        print(json.dumps(worker.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
