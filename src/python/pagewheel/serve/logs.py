"""One JSON object per line on standard error. Prompts and answers only where the operator asks."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

# Attributes that every record has; what is beside them was given as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """Time, level, event, and what the record was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {
            key: value
            for key, value in vars(record).items()
            if key not in _STANDARD and not key.startswith("_")  # other libraries' own
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str) -> None:
    """For the server's loggers and those of what it uses."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("pagewheel.serve", "uvicorn.error", "asyncio", "opentelemetry"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    # uvicorn tells each start and stop in several lines; what goes wrong matters.
    for name in ("uvicorn.error", "asyncio", "opentelemetry"):
        logging.getLogger(name).setLevel(logging.WARNING)
