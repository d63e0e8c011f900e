"""Log-probabilities of tokens, as OpenAI's two endpoints give them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewheel._pagewheel import TokenLogProb as LikelyToken

# The likeliest tokens of a position that a request may ask for.
MAX_TOP = 20
# OpenAI's, of a token that could not be chosen: JSON has no infinities.
_LOWEST = -9999.0


@dataclass(frozen=True)
class TokenLogProb:
    """A token; the log-probability is None for a prompt's first one."""

    token: bytes
    log_prob: float | None
    top: Sequence[TokenLogProb] = ()  # the likeliest in its place, best first

    @property
    def text(self) -> str:
        return self.token.decode("utf-8", "replace")


def of_tokens(
    token_bytes: Mapping[int, bytes],
    tokens: Sequence[int],
    log_probs: Sequence[float | None],
    likely: Sequence[Sequence[LikelyToken]] = (),
    count: int = 0,
) -> list[TokenLogProb]:
    """In order, each with the `count` likeliest in its place."""
    found = []
    for place, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=False)):
        others = likely[place][:count] if place < len(likely) else ()
        top = [TokenLogProb(each.bytes, max(_LOWEST, each.log_prob)) for each in others]
        value = None if log_prob is None else max(_LOWEST, log_prob)
        found.append(TokenLogProb(token_bytes.get(token, b""), value, top))
    return found


def chat_form(tokens: Sequence[TokenLogProb]) -> dict[str, Any]:
    """`logprobs` of a choice of /v1/chat/completions."""
    return {
        "content": [
            {**_entry(each), "top_logprobs": [_entry(one) for one in each.top]} for each in tokens
        ],
        "refusal": None,
    }


def _entry(token: TokenLogProb) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.log_prob, "bytes": list(token.token)}


class TextOffsets:
    """Where the tokens of a choice begin in their text, as they come: in characters.

    The parts of a character that several tokens share begin where it does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def of(self, tokens: Sequence[TokenLogProb]) -> list[int]:
        found = []
        for each in tokens:
            found.append(self._characters)
            self._characters += len(self._decoder.decode(each.token))
        return found


def completion_form(
    tokens: Sequence[TokenLogProb], offsets: Sequence[int], with_top: bool
) -> dict[str, Any]:
    """`logprobs` of a choice of /v1/completions; `offsets` are where the tokens begin."""
    return {
        "tokens": [each.text for each in tokens],
        "token_logprobs": [each.log_prob for each in tokens],
        "top_logprobs": [_by_text(each) for each in tokens] if with_top else None,
        "text_offset": offsets,
    }


def _by_text(token: TokenLogProb) -> dict[str, float] | None:
    """The likeliest and the token itself. Of tokens that look alike the likeliest."""
    if token.log_prob is None:
        return None
    found: dict[str, float] = {}
    for each in (*token.top, token):
        assert each.log_prob is not None
        found.setdefault(each.text, each.log_prob)
    return found
