"""The command `pagewheel`, which says on SIGUSR1 how many tasks the server's loop has."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from types import FrameType

from pagewheel.cli import main


def _tell(_number: int, _frame: FrameType | None) -> None:
    event = {"level": "info", "event": "tasks", "count": len(asyncio.all_tasks())}
    # Not by `sys.stderr`, which the signal may have found at work.
    os.write(2, json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _tell)
    main()
