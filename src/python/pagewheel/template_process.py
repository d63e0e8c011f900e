"""A child process that renders chat templates, where their time and memory can be cut.

A template can ask for years and terabytes in a line, and a thread cannot be stopped: a process
can. It is started by exec at the first render, by whatever Python there is, also where this one is
embedded in a program; it is kept for the next renders, and replaced when one has exceeded a limit.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import InvalidArgumentError

# Bytes of address space, of which Python and Jinja take 25 million.
MAX_MEMORY = 512 << 20
# On a machine that is busy with other things.
_MAX_START_SECONDS = 60.0
# How long a thread waits for the program's end, which begins before the threads are gone.
_MAX_EXIT_SECONDS = 60.0
# template_child.OUT_OF_MEMORY; the child's module is not imported here.
_OUT_OF_MEMORY = 3
# The child's own folders come last, so that nothing in them hides a module of Python's.
_BOOTSTRAP = "import sys; sys.path += sys.argv[2:]; import template_child; template_child.main()"
# The time zone, for strftime_now, and what a Python of one's own may need to find its library.
_KEPT_ENVIRONMENT = ("TZ", "TZDIR", "LD_LIBRARY_PATH")


class _Child:
    """One process, which answers one request at a time."""

    def __init__(self, python: str) -> None:
        """Raises OSError, TimeoutError or EOFError if it does not start, or refuses its limits."""
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _command(python),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={key: os.environ[key] for key in _KEPT_ENVIRONMENT if key in os.environ},
                start_new_session=True,  # a terminal's Ctrl-C is the parent's business
            )
        try:
            hello = self._receive(time.monotonic() + _MAX_START_SECONDS, 1 << 16)
            if "refused" in hello:
                raise OSError(f"it may not limit itself: {hello['refused']}")
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes, seconds: float, max_answer: int) -> dict[str, Any]:
        """Raises TimeoutError, or OSError or EOFError; there must be no other ask() after that."""
        deadline = time.monotonic() + seconds
        self._connection.settimeout(_remaining(deadline))
        # A parent that is not Python's own program may not ignore SIGPIPE.
        header = len(request).to_bytes(8, "big")
        self._connection.sendall(header, socket.MSG_NOSIGNAL)
        self._connection.sendall(request, socket.MSG_NOSIGNAL)
        return self._receive(deadline, max_answer)

    def _receive(self, deadline: float, max_size: int) -> dict[str, Any]:
        size = int.from_bytes(self._read(8, deadline), "big")
        if size > max_size:
            raise OSError(f"an answer of {size} bytes")
        answer: dict[str, Any] = json.loads(self._read(size, deadline))
        return answer

    def _read(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            self._connection.settimeout(_remaining(deadline))
            count = self._connection.recv_into(rest)
            if count == 0:
                raise EOFError
            rest = rest[count:]
        return data

    def end(self) -> int:
        """Ends the process, if it has not ended, and returns what it ended with."""
        with self._connection:
            self._process.kill()
            return self._process.wait()

    def forget(self) -> None:
        """After a fork: the process is the other one's child."""
        self._connection.close()
        self._process.returncode = 0


def _remaining(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)  # 0 would mean not to wait


def _command(python: str) -> list[str]:
    """Isolated from environment and user's folders, without site-packages' start-up files."""
    folders = [str(Path(__file__).resolve().parent)]
    for name in ("jinja2", "markupsafe"):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise OSError(f"there is no package {name}")
        folder = Path(next(iter(spec.submodule_search_locations)))
        folders.append(str(folder.resolve().parent))
    return [python, "-I", "-S", "-c", _BOOTSTRAP, str(MAX_MEMORY), *dict.fromkeys(folders)]


def _pythons() -> Iterator[str]:
    """Interpreters to try. sys.executable may be a program that embeds Python: it is not run."""
    chosen = os.environ.get("PAGEWHEEL_PYTHON")
    if chosen:
        yield chosen
        return
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3", "python")
    folders = [Path(prefix, "bin") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    found = [sys.executable, getattr(sys, "_base_executable", "")]
    found += [str(folder / name) for folder in folders for name in names]
    for path in dict.fromkeys(filter(None, found)):
        if re.fullmatch(r"(python|pypy)[0-9.]*[dt]*", Path(path).name) and os.access(path, os.X_OK):
            yield path


def _start() -> _Child:
    failures = []
    for python in _pythons():
        try:
            return _Child(python)
        except (OSError, ValueError, EOFError) as error:
            failures.append(f"{python}: {error or 'it ended at once'}")
    reasons = "; ".join(failures) or "no Python interpreter was found"
    raise RuntimeError(
        "chat templates are rendered by a Python process with limits, and none could be started: "
        f"{reasons}. PAGEWHEEL_PYTHON may name a Python of version 3.10 or newer"
    )


class _ProcessKilledError(RuntimeError):
    """A signal has ended the process."""


class TemplateProcess:
    """Renders one template at a time, for any thread; others wait for their turn."""

    def __init__(self) -> None:
        # By process: after a fork, a thread that is not there any more may hold the parent's.
        self._locks: dict[int, threading.RLock] = {}
        self._owner = os.getpid()
        self._is_busy = False
        self._child: _Child | None = None
        self._exiting_thread: int | None = None

    @property
    def pid(self) -> int | None:
        """The process' id, if there is one."""
        return None if self._child is None else self._child.pid

    def render(
        self, template: str, context: Mapping[str, Any], *, max_seconds: float, max_characters: int
    ) -> str:
        """Raises ValueError for whatever the template does wrong, and RuntimeError where no process
        can be started, where a signal has ended two of them in this render, or where this thread is
        rendering already (and a signal's handler calls).
        """
        request = _encoded(
            template=template,
            context=context,
            max_seconds=max_seconds,
            max_characters=max_characters,
        )
        try:
            # Six bytes are what JSON makes of a control character.
            answer = self._ask(request, max_seconds, 6 * max_characters + (1 << 16))
        except Exception:
            self._wait_for_the_exit()
            raise
        if "error" in answer:
            raise _failed(answer["error"])
        return str(answer["text"])

    def _ask(self, request: bytes, seconds: float, max_answer: int) -> dict[str, Any]:
        process = os.getpid()
        with self._locks.setdefault(process, threading.RLock()):
            if self._owner != process:  # a program around Python has forked, without a word to it
                self.forget()
            if self._is_busy:
                raise RuntimeError("this thread is rendering a chat template already")
            try:
                self._is_busy = True
                try:
                    return self._ask_child(request, seconds, max_answer)
                except _ProcessKilledError:  # by whoever is short of memory: no fault of a template
                    return self._ask_child(request, seconds, max_answer)
            finally:
                self._is_busy = False

    def _ask_child(self, request: bytes, seconds: float, max_answer: int) -> dict[str, Any]:
        """Raises _ProcessKilledError where the process was ended by a signal."""
        try:
            answer = self._running_child().ask(request, seconds, max_answer)
        except TimeoutError:
            self.end()
            raise _failed(f"chat template: it takes longer than {seconds:g} seconds") from None
        except (EOFError, OSError, ValueError):
            code = self.end()
            if code is not None and code < 0:
                raise _ProcessKilledError(
                    f"the process that renders chat templates was ended by signal {-code}"
                ) from None
            raise _failed(f"chat template: {_ending(code)}") from None
        except BaseException:  # a signal's handler may raise between request and answer
            self.end()
            raise
        if answer.get("is_last"):
            self.end()
        return answer

    def _running_child(self) -> _Child:
        if self._child is not None and not self._child.is_alive():
            self.end()
        if self._child is None:
            self._child = _start()
        return self._child

    def end(self) -> int | None:
        """Ends the process."""
        child, self._child = self._child, None
        return None if child is None else child.end()

    def end_at_exit(self) -> None:
        """Ends the process, also one that another thread waits for."""
        self._exiting_thread = threading.get_ident()
        self.end()

    def _wait_for_the_exit(self) -> None:
        """Daemon threads alone are left at exit. One that raised because its process was ended
        would print that, and the interpreter aborts where a thread prints while it ends.
        """
        if self._exiting_thread not in (None, threading.get_ident()):
            threading.Event().wait(_MAX_EXIT_SECONDS)

    def forget(self) -> None:
        """After a fork, in the child: no thread renders here, and the process is the parent's."""
        child, self._child = self._child, None
        if child is not None:
            child.forget()
        self._owner = os.getpid()
        self._is_busy = False


def _encoded(**request: Any) -> bytes:
    try:
        return json.dumps(request, ensure_ascii=False).encode(errors="surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise _failed(f"chat template: the conversation cannot be JSON: {error}") from None


def _failed(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, code="chat_template_failed")


def _ending(code: int | None) -> str:
    if code == _OUT_OF_MEMORY:
        return f"it needs too much memory; {MAX_MEMORY >> 20} MB are allowed"
    return f"the process that rendered it ended with code {code}"


PROCESS = TemplateProcess()
atexit.register(PROCESS.end_at_exit)
os.register_at_fork(after_in_child=PROCESS.forget)
