"""A model's folder: GGUF files and Hugging Face folders are converted by a process of their own.

Conversion computes in Python for seconds to minutes, which would hold other models' tokens, and it
reads files of strangers: what goes wrong there ends that process alone. The process runs this
module. Its arguments are its parent's process id, the bytes that it may allocate, 0 for any number,
and the model. It says JSON objects, each in a line: {"stage": ...} while it works, then
{"folder": ...} or {"error": ...}. Other lines are what libraries print.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from pagewheel.convert import ConversionError, converted_folder, resolve_model
from pagewheel.serve.security import ENVIRONMENT

_log = logging.getLogger("pagewheel.serve")


# Characters of what libraries say in a conversion that fails, for the log.
_MOST_SAID = 4096
_MOST_LINE = 1 << 16  # characters that are read at once: a longer line is none of ours
# The server's own threads go first.
_NICE = 5
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ConversionLimits:
    """0 of either is no limit. The memory is what the process allocates, without mapped files."""

    seconds: float = 3600.0
    memory_bytes: int = 0


class Conversion:
    """Converts once. run() waits on its caller's thread; end() may be called on another."""

    def __init__(self, model: str, source: Path, limits: ConversionLimits) -> None:
        self._model = model
        self._source = source
        self._limits = limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._why_ended = ""

    def run(self) -> Path:
        """Gives the folder of the converted model. Raises ConversionError, or OSError."""
        folder = converted_folder(self._source)
        return folder if folder is not None else self._run_child()

    def end(self, reason: str = "the server ends") -> None:
        """Kills the process, if there is one, and lets none begin."""
        with self._lock:
            self._why_ended = self._why_ended or reason
            if self._process is not None and self._process.returncode is None:
                self._process.kill()

    def _run_child(self) -> Path:
        process = self._start()
        seconds = self._limits.seconds
        timer = threading.Timer(seconds, self.end, (f"it took longer than {seconds:g} seconds",))
        timer.daemon = True
        if seconds:
            timer.start()
        try:
            with process:
                answer, said = self._follow(process)
        finally:
            timer.cancel()
        if "folder" in answer:
            return Path(answer["folder"])
        _log.warning("conversion failed", extra={"model": self._model, "said": said})
        raise ConversionError(self._why_ended or answer.get("error") or _death(process.returncode))

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        command += [str(self._limits.memory_bytes), str(self._source.absolute())]
        with self._lock:
            if self._why_ended:
                raise ConversionError(self._why_ended)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={name: value for name, value in os.environ.items() if name != ENVIRONMENT},
                # Ctrl-C of a terminal is for the server, which ends this process itself.
                start_new_session=True,
            )
            return self._process

    def _follow(self, process: subprocess.Popen[str]) -> tuple[dict[str, str], str]:
        """Logs progress. Gives the last object, which is the answer, and the end of what else was
        said."""
        answer, said = {}, ""
        assert process.stdout is not None
        while line := process.stdout.readline(_MOST_LINE):
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict):
                said = (said + line)[-_MOST_SAID:]
                continue
            answer = found
            if "stage" in answer:
                _log.info("converting", extra={"model": self._model, "stage": answer["stage"]})
        return answer, said


def _death(code: int) -> str:
    if code < 0:
        return f"the process that converted it was ended by {signal.Signals(-code).name}"
    return f"the process that converted it ended with {code}"


def main() -> int:
    parent, memory, source = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    _end_with(parent)
    os.nice(_NICE)
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    try:
        folder = resolve_model(source, progress=lambda stage: _say(stage=stage))
    except MemoryError:
        _say(error=f"the conversion needs more than {memory} bytes of memory")
        return 1
    except Exception as error:
        _say(error=str(error) or type(error).__name__)
        return 1
    _say(folder=str(folder))
    return 0


def _end_with(parent: int) -> None:
    """Linux kills this process when the thread ends that started it, which waits for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # it had ended before
        os._exit(1)


def _say(**what: str) -> None:
    print(f"\n{json.dumps(what)}", flush=True)  # a library may have begun a line


if __name__ == "__main__":
    sys.exit(main())
