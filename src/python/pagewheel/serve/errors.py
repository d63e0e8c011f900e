"""What goes wrong with a request, wherever it is found. http gives each kind its status."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from enum import Enum, auto
from typing import TypeVar

from pagewheel.errors import PagewheelError

T = TypeVar("T")

_SHORTEST = 0.001  # seconds: work that needs no waiting is done
# The `param` of a prompt that is refused: an endpoint knows which of its fields has the prompt.
PROMPT = "<prompt>"
# Codes that OpenAI's clients know; those of the engine's other errors are told as they are.
_CODES = {"context_too_long": "context_length_exceeded"}
# Parameters of the engine that requests call otherwise.
_FIELDS = {
    "prompt": PROMPT,
    "max_new_tokens": "max_tokens",
    "num_return_sequences": "n",
    "stop_strings": "stop",
    "rng_seed": "seed",
}


class Kind(Enum):
    """What a client can do about an error."""

    INVALID = auto()
    NOT_FOUND = auto()
    TOO_LATE = auto()
    TOO_MANY = auto()  # others of this client are served now
    FAILED = auto()
    UNAVAILABLE = auto()  # the same request may work later


class RequestError(Exception):
    """`param` names the request's field that is wrong, `code` says what is, for programs."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        code: str | None = None,
        param: str | None = None,
        retry_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.param = param
        self.retry_seconds = retry_seconds


def unavailable(message: str, code: str, retry_seconds: int = 5) -> RequestError:
    return RequestError(Kind.UNAVAILABLE, message, code, retry_seconds=retry_seconds)


def too_many(message: str, code: str, retry_seconds: int = 1) -> RequestError:
    return RequestError(Kind.TOO_MANY, message, code, retry_seconds=retry_seconds)


def too_late() -> RequestError:
    return RequestError(
        Kind.TOO_LATE, "the deadline came before the first token", "deadline_exceeded"
    )


def refused(error: Exception) -> RequestError:
    """Names the request's field that the engine means."""
    if not isinstance(error, PagewheelError):
        return RequestError(Kind.INVALID, str(error))
    param = _FIELDS.get(error.parameter or "", error.parameter)
    message = str(error) if param in (None, PROMPT) else f"{param}: {error}"
    return RequestError(Kind.INVALID, message, _CODES.get(error.code, error.code), param)


async def before(deadline: float, work: Awaitable[T]) -> T:
    """Gives the work's result. Raises RequestError if it is not there by a time.monotonic()."""
    left = None if deadline == math.inf else max(_SHORTEST, deadline - time.monotonic())
    try:
        return await asyncio.wait_for(work, left)
    except (TimeoutError, asyncio.TimeoutError):
        raise too_late() from None
