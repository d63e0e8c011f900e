"""What has stopped an answer: one of the request's stop texts or tokens, or the model itself.

The engine cuts the text off at the stop text and does not say which one it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pagewheel

# The latest tokens in whose text a stop text ends: the last one, and those whose text the
# detokenizer may have held back till then, such as the bytes of one character.
_LATEST = 8


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
    stops = config.stop_strings
    num_early = max(config.min_tokens, len(tokens) - _LATEST)
    for is_shown in (True, False):
        text = str(tokenizer.decode(list(tokens), skip_special_tokens=is_shown))
        early = str(tokenizer.decode(list(tokens[:num_early]), skip_special_tokens=is_shown))
        found = first_stop(text, stops, _common_length(text, early))
        if found is not None:
            return found
    # A decoder may drop a space before the first word, with which the stop text begins.
    return next(iter(stops)) if len(stops) == 1 else None


def is_stop_token(config: pagewheel.GenerationConfig, tokens: Sequence[int]) -> bool:
    """Whether the last one ends a sequence."""
    stops = {config.eos_token_id, *config.stop_token_ids}
    return bool(tokens) and not config.ignore_eos and tokens[-1] in stops


def _common_length(text: str, early: str) -> int:
    """Of what both begin with: half a character at the end of the early text is not in the text."""
    if text.startswith(early):
        return len(early)
    return next((i for i, (a, b) in enumerate(zip(text, early, strict=False)) if a != b), len(text))


def first_stop(text: str, stops: Iterable[str], early: int = 0) -> str | None:
    """As the engine chooses: the first in the text, of several at one place the longest. It ends
    behind so many early characters; of these no more are searched than a stop text has."""
    places = {stop: find_stop(text, stop, early) for stop in stops}
    found = [(place, -len(stop), stop) for stop, place in places.items() if place >= 0]
    return min(found)[2] if found else None


def find_stop(text: str, stop: str, early: int) -> int:
    """Where it begins, if it ends behind the early characters; else -1."""
    return text.find(stop, max(0, early - len(stop) + 1))
