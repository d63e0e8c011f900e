"""What has stopped an answer: one of the request's stop texts or tokens, or the model itself.

The engine cuts the text off at the stop text and does not say which one it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pagewheel


def stop_reason(
    tokenizer: pagewheel.Tokenizer,
    tokens: Sequence[int],
    config: pagewheel.GenerationConfig,
    stop_tokens: Iterable[int],
) -> str | int | None:
    """Of a finished sequence. None: the model has ended it. `stop_tokens` are the request's own."""
    if is_stop_token(config, tokens):  # the engine asks for it before it looks for texts
        return tokens[-1] if tokens[-1] in stop_tokens else None
    # A stop text may be in what is shown, or have special tokens in it.
    for is_shown in (True, False):
        text = tokenizer.decode(list(tokens), skip_special_tokens=is_shown)
        early = tokenizer.decode(list(tokens[: config.min_tokens]), skip_special_tokens=is_shown)
        found = first_stop(str(text), config.stop_strings, len(str(early)))
        if found is not None:
            return found
    # A decoder may drop a space before the first word, with which the stop text begins.
    return next(iter(config.stop_strings)) if len(config.stop_strings) == 1 else None


def is_stop_token(config: pagewheel.GenerationConfig, tokens: Sequence[int]) -> bool:
    """Whether the last one ends a sequence."""
    stops = {config.eos_token_id, *config.stop_token_ids}
    return bool(tokens) and not config.ignore_eos and tokens[-1] in stops


def first_stop(text: str, stops: Iterable[str], early: int = 0) -> str | None:
    """As the engine chooses: the first in the text, of several at one place the longest. It ends
    behind so many early characters."""
    places = {stop: find_stop(text, stop, early) for stop in stops}
    found = [(place, -len(stop), stop) for stop, place in places.items() if place >= 0]
    return min(found)[2] if found else None


def find_stop(text: str, stop: str, early: int) -> int:
    """Where it begins, if it ends behind the early characters; else -1."""
    return text.find(stop, max(0, early - len(stop) + 1))
