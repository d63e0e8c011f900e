"""What runs in the process that converts a model; `conversion.py` starts it.

Its arguments are the bytes that it may allocate, 0 for any number, and the model. Each line of its
output is a JSON object: {"stage": ...} while it works, then {"folder": ...} or {"error": ...}.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from pagewheel.convert import resolve_model

# The server's own threads go first.
_NICE = 5


def main() -> int:
    memory, source = int(sys.argv[1]), Path(sys.argv[2])
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


def _say(**what: str) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
