"""The text of tokens with the special ones, up to the first stop string.

The engine's own text leaves special tokens out, which are what some families mark calls with.
"""

from __future__ import annotations

from collections.abc import Collection

import pagewheel
from pagewheel.serve.models.generation import Piece


class VerbatimText:
    """Of one sequence."""

    def __init__(
        self, tokenizer: pagewheel.Tokenizer, stop_strings: Collection[str], with_stop: bool
    ) -> None:
        self._stop_strings = tuple(stop_strings)
        self._with_stop = with_stop
        self._held = ""
        self._is_over = False
        self._streamer = pagewheel.TextStreamer(
            tokenizer, self._take, {"skip_special_tokens": False}
        )

    def _take(self, text: str) -> None:
        self._held += text

    def add(self, piece: Piece) -> str:
        """What may be handed out now: nothing that may be the beginning of a stop string."""
        if piece.tokens:
            self._streamer.write(piece.tokens)
        if piece.finish is not None:
            self._streamer.end()
        if self._is_over:
            return ""
        found = [
            (place, stop)
            for stop in self._stop_strings
            if stop and (place := self._held.find(stop)) >= 0
        ]
        if found:
            self._is_over = True
            place, stop = min(found)
            return self._held[: place + len(stop) * self._with_stop]
        kept = 0 if piece.finish is not None else self._num_held()
        ready = self._held[: len(self._held) - kept]
        self._held = self._held[len(ready) :]
        return ready

    def _num_held(self) -> int:
        """Characters at the end that begin a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop_strings), default=0)
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop_strings):
                return size
        return 0
