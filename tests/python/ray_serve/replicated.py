"""A front with replicas as a process of its own, and what tests ask of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
from waiting import eventually

SECONDS = 300.0
KEY, OTHER_KEY = "key-of-the-tests", "another-key-of-the-tests"
COMPLETIONS = "/v1/completions"
SERVE = "from pagewheel.cli import main; main()"


class Replicated:
    """A process, its clients, and its log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        eventually(lambda: bool(self.url), SECONDS)
        head = {"authorization": f"Bearer {KEY}"}
        self.http = httpx.Client(base_url=self.url, timeout=SECONDS, headers=head)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if '"listening"' in line:
                self.url = json.loads(line)["url"]

    def post(self, path: str, body: Any, **named: Any) -> httpx.Response:
        return self.http.post(path, json=body, **named)

    def num_replicas(self) -> int:
        """That run, as /ready says."""
        assert self.process.poll() is None, "".join(self.lines)
        found = self.http.get("/ready").json()
        return int(found.get("replicas", 0))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of its samples, of all replicas."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith((name + "{", name + " ")) and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                total += float(line.rpartition(" ")[2])
        return total

    def replica_processes(self) -> list[psutil.Process]:
        """Of this machine: Ray gives them the name of what they run."""
        return [
            each
            for each in psutil.Process(self.process.pid).children(recursive=True)
            if "ServeReplica:pagewheel:Replica" in _command_of(each)
        ]

    def num_connections(self) -> int:
        """That replicas have opened to the front."""
        front = psutil.Process(self.process.pid).net_connections("tcp")
        ports = {each.laddr.port for each in front if each.status == psutil.CONN_LISTEN}
        return sum(
            each.status == psutil.CONN_ESTABLISHED and each.raddr.port in ports
            for replica in self.replica_processes()
            for each in _connections_of(replica)
        )


def _connections_of(process: psutil.Process) -> list[Any]:
    try:
        return process.net_connections("tcp")
    except psutil.NoSuchProcess:  # it was a replica's child, and has ended meanwhile
        return []


def _command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return ""


@contextmanager
def replicated(code: str, *arguments: str, count: int = 1) -> Iterator[Replicated]:
    """Until the block is left. `code` is what Python runs."""
    # Ray's sockets lie there, whose paths must be short.
    folder = tempfile.mkdtemp(prefix="pw-", dir="/tmp")
    environment = {**os.environ, "RAY_TMPDIR": folder, "PAGEWHEEL_API_KEYS": f"{KEY},{OTHER_KEY}"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        served = Replicated(process)
        eventually(lambda: served.num_replicas() >= count, SECONDS)
        yield served
        served.http.close()
        served.client.close()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)


def serve_arguments(folder: Path, *options: str) -> list[str]:
    model = [f"tiny={folder}", "--port", "0", "--scheduler", "num_kv_blocks=1000"]
    # Else equal requests can have other answers: it depends on what is computed beside them.
    return ["serve", *model, "-p", "batch_invariant=true", *options]
