"""The text of tokens with the special ones, up to the first stop string.

The engine's own text leaves special tokens out, which are what some families mark calls with.
"""

from __future__ import annotations

from collections.abc import Collection

import pagewheel
from pagewheel.serve.models.generation import OutputDelta


class VerbatimText:
    """Of one sequence."""

    def __init__(
        self,
        tokenizer: pagewheel.Tokenizer,
        stop_strings: Collection[str],
        with_stop: bool,
        min_tokens: int = 0,
        like: VerbatimText | None = None,
    ) -> None:
        """`like`: a text with the same stop strings, to share them; nothing was added to it."""
        self._ready = ""
        self._streamer = pagewheel.TextStreamer(
            tokenizer, self._take, {"skip_special_tokens": False}
        )
        if like is not None:
            self._streamer._begin_as(like._streamer)
            return
        config = pagewheel.GenerationConfig(
            stop_strings=set(stop_strings),
            include_stop_str_in_output=with_stop,
            min_tokens=min_tokens,
        )
        self._streamer._begin(config)

    def _take(self, text: str) -> None:
        self._ready += text

    def add(self, delta: OutputDelta) -> str:
        """What may be handed out now: nothing that may be the beginning of a stop string."""
        if delta.tokens:
            self._streamer.write(delta.tokens)
        if delta.finish_reason is not None:
            self._streamer.end()
        ready, self._ready = self._ready, ""
        return ready
