"""Grammars that were refused lately: they are refused again without being compiled."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict

from pagewheel import StructuredOutputConfig

_SECONDS = 60.0
_MOST = 256
# The compiler's word for "not now": it says nothing of the grammar.
_BUSY = "others take too long"


def is_busy(message: str) -> bool:
    """Whether a refusal is of the moment, not of the grammar."""
    return _BUSY in message


class RefusedGrammars:
    """By what they say. Of any thread."""

    def __init__(self, seconds: float = _SECONDS, most: int = _MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()  # until when, and why

    def check(self, config: StructuredOutputConfig) -> None:
        """Raises ValueError as it was raised before."""
        with self._lock:
            until, message = self._known.get(_key(config), (0.0, ""))
        if time.monotonic() < until:
            raise ValueError(message)

    def add(self, config: StructuredOutputConfig, message: str) -> None:
        if is_busy(message):
            return
        with self._lock:
            key = _key(config)
            self._known[key] = (time.monotonic() + self._seconds, message)
            self._known.move_to_end(key)
            if len(self._known) > self._most:
                self._known.popitem(last=False)


def _key(config: StructuredOutputConfig) -> bytes:
    return hashlib.sha256(str(config).encode()).digest()
