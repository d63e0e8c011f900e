"""The text of tokens with the special ones, up to the first stop string.

The engine's own text leaves special tokens out, which are what some families mark calls with.
"""

from __future__ import annotations

from collections.abc import Collection

import pagewheel
from pagewheel.serve.api.stop_reason import find_stop
from pagewheel.serve.models.generation import Piece


class VerbatimText:
    """Of one sequence."""

    def __init__(
        self,
        tokenizer: pagewheel.Tokenizer,
        stop_strings: Collection[str],
        with_stop: bool,
        min_tokens: int = 0,
    ) -> None:
        self._stop_strings = tuple(stop_strings)
        self._with_stop = with_stop
        self._early_tokens = min_tokens  # that are still to come
        self._held = ""
        self._num_early = 0  # of its characters: no stop string ends in them
        self._is_over = False
        self._streamer = pagewheel.TextStreamer(
            tokenizer, self._take, {"skip_special_tokens": False}
        )

    def _take(self, text: str) -> None:
        self._held += text

    def add(self, piece: Piece) -> str:
        """What may be handed out now: nothing that may be the beginning of a stop string."""
        early, others = piece.tokens[: self._early_tokens], piece.tokens[self._early_tokens :]
        if early:
            self._streamer.write(early)
            self._early_tokens -= len(early)
            self._num_early = len(self._held)
        if others:
            self._streamer.write(others)
        if piece.finish is not None:
            self._streamer.end()
        if self._is_over:
            return ""
        found = [
            (place, stop)
            for stop in self._stop_strings
            if stop and (place := find_stop(self._held, stop, self._num_early)) >= 0
        ]
        if found:
            self._is_over = True
            place, stop = min(found)
            return self._held[: place + len(stop) * self._with_stop]
        kept = 0 if piece.finish is not None else self._num_held()
        ready = self._held[: len(self._held) - kept]
        self._held = self._held[len(ready) :]
        self._num_early = max(0, self._num_early - len(ready))
        return ready

    def _num_held(self) -> int:
        """Characters at the end that begin a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop_strings), default=0)
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stop_strings):
                return size
        return 0
