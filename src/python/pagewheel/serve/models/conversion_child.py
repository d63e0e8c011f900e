"""What runs in the process that converts a model; `conversion.py` starts it.

Its arguments are its parent's process id, the bytes that it may allocate, 0 for any number, and
the model. It ends with its parent, however that ends. Each line of its output is a JSON object:
{"stage": ...} while it works, then {"folder": ...} or {"error": ...}.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path

from pagewheel.convert import resolve_model

# The server's own threads go first.
_NICE = 5
_PR_SET_PDEATHSIG = 1


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
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
