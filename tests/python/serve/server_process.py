"""`pagewheel serve` as a process of its own, and what the system knows of it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from pagewheel.cli import main; main()", "serve"]
# The same command. On SIGUSR1 it says how many tasks its loop has.
WATCHED_COMMAND = [sys.executable, str(Path(__file__).parent / "watched_server.py"), "serve"]


class Process:
    """A server, and what it has written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.urls: list[str] = []
        while (event := self._events.get(timeout=60))["event"] != "ready":
            if event["event"] == "listening":
                self.urls.append(str(event["url"]))
        self.url = self.urls[0]
        self.port = int(self.url.rpartition(":")[2])

    def _read(self) -> None:
        assert self.process.stderr is not None
        with suppress(ValueError):  # it is closed when the process has ended
            for line in self.process.stderr:
                self.lines.append(line)
                self._events.put(_event(line))

    def event(self, name: str) -> dict[str, Any]:
        """The next one of this name."""
        while True:
            event = self._events.get(timeout=60)
            if event["event"] == name:
                return event

    def ended(self, seconds: float = 30) -> int:
        """The exit code. All that it wrote is in `lines` then."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def failures(self) -> list[str]:
        """What it wrote that nothing a client does may lead to."""
        return [line for line in self.lines if _event(line)["level"] in ("error", "critical")]

    def num_tasks(self) -> int:
        """Of a server that was started with WATCHED_COMMAND."""
        self.process.send_signal(signal.SIGUSR1)
        return int(self.event("tasks")["count"])

    def num_descriptors(self) -> int:
        return sum(1 for _ in self._system("fd").iterdir())

    def num_threads(self) -> int:
        return sum(1 for _ in self._system("task").iterdir())

    def resident_mib(self) -> float:
        pages = self._system("statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def _system(self, name: str) -> Path:
        return Path(f"/proc/{self.process.pid}") / name


def _event(line: str) -> dict[str, Any]:
    """A traceback or a library's own message is no JSON."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {"event": line, "level": "error"}
    return found


@contextmanager
def started(
    folder: Path | str, *options: str, command: Sequence[str] = COMMAND, **environment: str
) -> Iterator[Process]:
    with subprocess.Popen(
        [*command, f"tiny={folder}", "--port", "0", "--scheduler", "num_kv_blocks=400", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()
