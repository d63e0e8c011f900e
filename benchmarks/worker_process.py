"""The parent's end of a worker."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peers import Peer

_ROOT = Path(__file__).resolve().parent.parent


class WorkerError(RuntimeError):
    """A worker said no, died, or took too long."""


class WorkerProcess(AbstractContextManager["WorkerProcess"]):
    """One engine in a process of its own; ends with the `with` block."""

    def __init__(
        self, peer: Peer, *, timeout: float, environment: Mapping[str, str] | None = None
    ) -> None:
        """`timeout`: seconds one request may take. `environment` adds to the parent's."""
        self.peer = peer
        self._timeout = timeout
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        search_path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", peer.engine, json.dumps(peer.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": search_path, **(environment or {})},
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""
        self.answered = self.started

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def request(self, op: str, **arguments: Any) -> Any:
        """Run an operation and wait for its result; `answered` is then when it was ready.

        Raises WorkerError with what the worker said last.
        """
        line = json.dumps({"op": op, **arguments}) + "\n"
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: reading its answer says so
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        answer = self._read_answer(op)
        if "error" in answer:
            raise self._failure(f"{op}: {answer['error']}")
        self.answered = float(answer["at"])
        return answer["result"]

    def _read_answer(self, op: str) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        while b"\n" not in self._pending:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self._process.kill()
                raise self._failure(f"{op}: no answer within {self._timeout:.0f} s")
            assert self._process.stdout is not None
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise self._failure(f"{op}: the process ended with code {self._process.wait()}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, what: str) -> WorkerError:
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").strip().splitlines()[-5:]
        return WorkerError("\n  ".join([f"peer {self.peer.name!r}: {what}", *said]))

    def close(self) -> None:
        """End the process: closed input is its signal; after 10 s it is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._process.stdout.close()
        self._stderr.close()

    def __exit__(self, *exception: object) -> None:
        self.close()
