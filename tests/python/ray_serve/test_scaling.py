"""Replicas that come and go with the load, and the same under `serve run`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'pagewheel[ray]'")

from replicated import COMPLETIONS, SECONDS, Replicated, replicated
from waiting import eventually

from pagewheel.ray_serve import application

pytestmark = pytest.mark.all_cores

# With seconds where operators have minutes.
SCALING = """
import sys
from pathlib import Path
from pagewheel.ray_serve.cluster import serve_replicas
from pagewheel.serve_options import ReplicaSettings
from pagewheel.serve import logs
from pagewheel.serve.security import read_keys
from pagewheel.serve.settings import ModelSettings, ServerSettings

logs.configure("info")
model = ModelSettings(
    "tiny", Path(sys.argv[1]), scheduler={"num_kv_blocks": 1000}, is_pinned=True
)
serve_replicas(
    ServerSettings(models=(model,), port=0, keys=read_keys(None)),
    ReplicaSettings(fewest=1, most=2, cpus=1, target_requests=2, up_seconds=1, down_seconds=1),
)
"""
LONG = {"max_tokens": 800, "ignore_eos": True, "stream": True, "n": 2, "temperature": 1.0}


class Stream:
    """A long answer, read on a thread."""

    def __init__(self, served: Replicated, prompt: str) -> None:
        self.text = ""
        self.replica = ""
        self._body = {**LONG, "prompt": prompt}
        self._served = served
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with self._served.http.stream("POST", COMPLETIONS, json=self._body) as answer:
            self.replica = answer.headers.get("x-pagewheel-replica", "")
            self.text = "".join(answer.iter_text())

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def reasons(self) -> list[str]:
        """Why its choices have ended."""
        self._thread.join(SECONDS)
        lines = [each[len("data: ") :] for each in self.text.split("\n") if each]
        choices = [c for each in lines[:-1] for c in json.loads(each).get("choices", [])]
        return [each["finish_reason"] for each in choices if each["finish_reason"]]


def test_replicas_follow_the_load_and_one_that_goes_ends_its_requests(tiny_folder: Path) -> None:
    with replicated(SCALING, str(tiny_folder)) as served:
        running: list[Stream] = []
        ended: list[Stream] = []

        def keep_busy(count: int) -> None:
            for each in [one for one in running if not one.is_running()]:
                running.remove(each)
                ended.append(each)
            while len(running) < count:
                running.append(Stream(served, f"stream {len(running) + len(ended)}"))

        def grown() -> bool:
            keep_busy(8)
            return served.num_replicas() == 2

        def both_used() -> bool:
            keep_busy(8)
            return len({each.replica for each in running} - {""}) == 2

        eventually(grown, SECONDS)
        eventually(both_used)

        def shrunk() -> bool:
            keep_busy(2)
            return served.num_replicas() == 1

        eventually(shrunk, SECONDS)
        ended += running
        # Whichever replica they were on, and whenever it was told to go.
        assert all(each.reasons() == ["length"] * 2 for each in ended)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_serve_run_takes_the_options_of_pagewheel_serve(tiny_folder: Path, tmp_path: Path) -> None:
    port = free_port()
    options = {"models": f"tiny={tiny_folder}", "replicas": 1, "scheduler": ["num_kv_blocks=400"]}
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "pagewheel",
                "route_prefix": "/",
                "import_path": "pagewheel.ray_serve:app",
                "args": {**options, "alias": ["other=tiny"], "max_tokens": 5},
            }
        ],
    }
    file = tmp_path / "serve.yaml"
    file.write_text(json.dumps(config))  # which is YAML too
    folder = tempfile.mkdtemp(prefix="pw-", dir="/tmp")
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.serve.scripts", "run", str(file)],
        env={**os.environ, "RAY_TMPDIR": folder, "RAY_worker_niceness": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"

        def is_ready() -> bool:
            assert process.poll() is None
            try:
                return httpx.get(f"{url}/ready", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        eventually(is_ready, SECONDS)
        body: dict[str, Any] = {"model": "other", "prompt": "a", "max_tokens": 5}
        answer = httpx.post(url + COMPLETIONS, json=body, timeout=60)
        assert answer.json()["usage"]["prompt_tokens"] == 1
        with httpx.stream("POST", url + COMPLETIONS, json={**body, "stream": True}) as stream:
            assert "".join(stream.iter_text()).endswith("data: [DONE]\n\n")
        refused = httpx.post(url + COMPLETIONS, json={**body, "max_tokens": 6})
        assert refused.status_code == 400
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SECONDS)
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"models": "a.gguf", "bananas": 1}, "bananas"),
        ({"models": "a.gguf", "replicas": "8-2"}, "replicas"),
        ({"models": "a.gguf", "max_queue": -1}, "max-queue"),
        ({"models": "a.gguf", "prefix_cache_dir": "/tmp"}, "prefix-cache-dir"),
        ({"models": "a.gguf", "port": 80}, "port: Ray Serve decides it"),
    ],
)
def test_wrong_options_of_serve_run_are_named(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        application.app(args)
