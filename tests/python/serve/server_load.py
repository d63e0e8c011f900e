"""Clients of every kind at once, most of them rude, and what must hold meanwhile and afterwards."""

from __future__ import annotations

import random
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
from serving import Served, connect, request_bytes, tasks_of, tiny_settings

from pagewheel.serve.settings import Limits, ServerSettings

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
REST_SECONDS = 20.0
# Of slow senders: a server that shares its interpreter with so many clients takes connections late.
CUT_OFF_SECONDS = 60.0
# Between two tokens of a well-behaved client, on a busy machine.
LONGEST_GAP = 5.0
_HELD_CONNECTIONS = 1000
_ANSWER_TOKENS = 60
_LARGE = b'{"prompt": "' + b"a" * (10 << 20) + b'"}'
_DEEP = b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
_WRONG = ((_LARGE, 413), (b'{"prompt": "\xff"}', 400), (_DEEP, 400), (b"\x00" * 1000, 400))


def load_settings(folder: Path) -> ServerSettings:
    """Answers are the same to the bit whatever happens around them; limits are short."""
    limits = Limits(head_seconds=2.0, body_seconds=3.0, stall_seconds=3.0)
    scheduler = {"num_kv_blocks": 400, "max_num_seqs": 32, "max_queue": 2000}
    settings = tiny_settings(folder, limits, scheduler)
    models = [replace(each, properties={"batch_invariant": True}) for each in settings.models]
    return replace(settings, models=tuple(models))


def hang_up(connection: socket.socket, abruptly: bool) -> None:
    if abruptly:  # RST instead of FIN
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def leave_at_some_moment(served: Served, seed: int | str) -> None:
    """Before headers, within them, in the body, in the queue, in the answer, or not at all."""
    chance = random.Random(seed)
    body: dict[str, Any] = {
        "prompt": "the " * chance.randint(1, 60),
        "max_tokens": chance.randint(1, 200),
        "stream": chance.random() < 0.7,
        "n": chance.choice((1, 1, 1, 3)),
        "temperature": 1.0,
    }
    path = COMPLETIONS
    if chance.random() < 0.3:
        path = CHAT
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    data = request_bytes(path, body, Connection="close")
    with connect(served) as connection:
        moment = chance.random()
        if moment < 0.3:
            connection.sendall(data[: chance.randrange(len(data))])
        else:
            connection.sendall(data)
            if moment < 0.8:
                time.sleep(chance.random() * 0.05)
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    connection.recv(chance.choice((1, 100, 5000)))
            else:
                while connection.recv(1 << 16):
                    pass
        hang_up(connection, chance.random() < 0.5)


def num_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class ServerLoad:
    """Threads of clients. What must not be is in `problems`, what happened in `counts`."""

    def __init__(self, served: Served, seed: int, leaving: int = 64, polite: int = 4) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.longest_gap = 0.0
        self._served = served
        self._seed = seed
        self._end = 0.0
        self._lock = threading.Lock()
        self._client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
        self._prompts = [[5 + (number * 37 + at) % 200 for at in range(40)] for number in range(8)]
        self._texts = [self._whole(prompt) for prompt in self._prompts]
        self._clients = [
            *[(self._leave, "left")] * leaving,
            *[(self._stay, "polite")] * polite,
            *[(self._read_slowly, "slow readers")] * 2,
            *[(self._send_slowly, "slow senders")] * 4,
            *[(self._send_nonsense, "nonsense")] * 2,
        ]

    def run(self, seconds: float) -> None:
        """Until all clients are gone, and the server has come to rest or not."""
        _allow_many_descriptors()
        served = self._served
        tasks, threads = tasks_of(served), threading.active_count()
        descriptors = num_descriptors()
        self._end = time.monotonic() + seconds
        clients = [
            threading.Thread(target=self._repeat, args=(work, name, number))
            for number, (work, name) in enumerate(self._clients)
        ]
        for client in clients:
            client.start()
        self._guarded("connections", self._hold_connections)
        for client in clients:
            client.join()
        self._client.close()
        self._expect("a request or a block is left", served.is_at_rest)
        self._expect("a task is left", lambda: tasks_of(served) <= tasks + 1)
        self._expect("a descriptor is left", lambda: num_descriptors() <= descriptors)
        # Pools of threads may have grown to their bounds, which do not depend on clients.
        self._expect("a thread is left", lambda: threading.active_count() <= threads + 8)
        if self.longest_gap > LONGEST_GAP:
            self.problems.append(f"a client waited {self.longest_gap:.1f} s for its next token")

    def _expect(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + REST_SECONDS
        while not condition():
            if time.monotonic() > end:
                self.problems.append(what)
                return
            time.sleep(0.05)

    def _repeat(self, work: Callable[[random.Random], None], name: str, number: int) -> None:
        chance = random.Random(f"{self._seed} {number}")
        while time.monotonic() < self._end and not self.problems:
            self._guarded(name, lambda: work(chance))
            with self._lock:
                self.counts[name] += 1

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.problems.append(f"{name}: {type(error).__name__}: {error}")

    def _leave(self, chance: random.Random) -> None:
        # A server that answers early may close while the rest is still on its way.
        with suppress(ConnectionError):
            leave_at_some_moment(self._served, str(chance.random()))

    def _body(self, prompt: list[int], stream: bool) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "max_tokens": _ANSWER_TOKENS,
            "ignore_eos": True,
            "stream": stream,
            "priority": 1,
        }

    def _whole(self, prompt: list[int]) -> str:
        body = self._body(prompt, False)
        answer = httpx.post(self._served.url + COMPLETIONS, json=body, timeout=60)
        return str(answer.raise_for_status().json()["choices"][0]["text"])

    def _stay(self, chance: random.Random) -> None:
        """Gets what the prompt gave when nobody else was there."""
        index = chance.randrange(len(self._prompts))
        prompt, expected = self._prompts[index], self._texts[index]
        if chance.random() < 0.3:
            text = self._whole(prompt)
        else:
            text, moments = self._streamed(prompt)
            gaps = [after - before for before, after in pairwise(moments)]
            with self._lock:
                self.longest_gap = max(self.longest_gap, *gaps)
        if text != expected:
            self.problems.append(f"prompt {index} gave {text!r}, alone it gives {expected!r}")

    def _streamed(self, prompt: list[int]) -> tuple[str, list[float]]:
        stream = self._client.completions.create(
            model="tiny",
            prompt=prompt,
            max_tokens=_ANSWER_TOKENS,
            stream=True,
            extra_body={"ignore_eos": True, "priority": 1},
        )
        moments = [time.monotonic()]
        text = ""
        for event in stream:
            moments.append(time.monotonic())
            text += event.choices[0].text
        return text, moments

    def _read_slowly(self, chance: random.Random) -> None:
        body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
        with connect(self._served, SO_RCVBUF=4096) as connection:
            connection.sendall(request_bytes(COMPLETIONS, body))
            with suppress(ConnectionError):
                for _ in range(chance.randint(1, 40)):
                    if not connection.recv(200):
                        return
                    time.sleep(0.05)

    def _send_slowly(self, chance: random.Random) -> None:
        """A byte now and then, until the server has enough of it."""
        data = request_bytes(COMPLETIONS, {"prompt": "a", "max_tokens": 1})
        answer = b""
        with connect(self._served) as connection, suppress(ConnectionError):
            begin = time.monotonic()
            if chance.random() < 0.5:  # only the body is slow
                connection.sendall(data[:-20])
                data = data[-20:]
            for sent, byte in enumerate(data):
                connection.sendall(bytes([byte]))
                connection.settimeout(0.5)
                with suppress(TimeoutError):
                    chunk = connection.recv(1 << 16)
                    if not chunk:
                        return
                    answer += chunk
                if time.monotonic() - begin > CUT_OFF_SECONDS:
                    self.problems.append(
                        f"a slow sender was not cut off after {sent} of {len(data)} bytes, "
                        f"and got {answer[:100]!r}"
                    )
                    return

    def _send_nonsense(self, chance: random.Random) -> None:
        body, status = chance.choice(_WRONG)
        answer = httpx.post(
            self._served.url + COMPLETIONS,
            content=body,
            headers={"content-type": "application/json"},
            timeout=60,
        )
        if answer.status_code != status:
            self.problems.append(f"{body[:30]!r}... got {answer.status_code}, not {status}")
        time.sleep(chance.random())

    def _hold_connections(self) -> None:
        """A thousand at once, each with a request that is never whole, again and again."""
        while time.monotonic() < self._end and not self.problems:
            with ExitStack() as held:
                for number in range(_HELD_CONNECTIONS):
                    connection = held.enter_context(connect(self._served))
                    with suppress(ConnectionError):
                        connection.sendall(request_bytes(COMPLETIONS, {})[: number % 60])
                health = httpx.get(self._served.url + "/health", timeout=60)
                if health.status_code != 200:
                    self.problems.append(f"/health says {health.status_code}")
                time.sleep(1)
            self.counts["connections"] += _HELD_CONNECTIONS


def _allow_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8 * _HELD_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
