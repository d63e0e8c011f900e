"""An engine that answers at once, for tests of the harness around it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import Limits, Load
from benchmarks.peers import Peer
from benchmarks.peers.engine import Engine, Generated

QUIET = Load(seconds=1.0, others=0.0, own=1.0, steal=0.0)
ANYTHING = Limits(others=1e9, steal=1e9, waiting_workers=1e9)


def even_steps(count: int, first: float, last: float) -> Generated:
    """A token per step, evenly spaced."""
    between = (last - first) / max(count - 1, 1)
    return Generated(first, last, [first + i * between for i in range(count)])


class FakeEngine(Engine):
    """Answers at once, with made-up times."""

    def load(self, model: Path, device: str) -> None:
        print("an engine may print to standard output")
        if self.options.get("break_load"):
            raise ValueError("this model is broken")

    def settings(self) -> dict[str, str]:
        return {"device": "none"}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
        if self.options.get("die"):
            print("about to die", file=sys.stderr, flush=True)
            sys.stderr.flush()
            os._exit(7)
        if self.options.get("hang"):
            signal.pause()
        speed = float(self.options.get("speed", 1.0))
        return even_steps(new_tokens, 1.0 / speed, 2.0 / speed)


def fake(name: str, **options: Any) -> Peer:
    return Peer(name, "fake_engine:FakeEngine", options)
