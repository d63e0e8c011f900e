"""What the engine refuses, with the request's field that is meant."""

from __future__ import annotations

import re

from pagewheel._pagewheel import generation_parameters
from pagewheel.serve.http.errors import PROMPT, ApiError, bad_field

# Of the engine's parameters, what requests call otherwise.
_FIELD_NAMES = {
    "max_new_tokens": "max_tokens",
    "num_return_sequences": "n",
    "stop_strings": "stop",
    "rng_seed": "seed",
}


def refused(message: str) -> ApiError:
    """400. The field is the first parameter that the message names."""
    if message.startswith("the prompt has") and "context" in message:
        return ApiError(400, message, param=PROMPT, code="context_length_exceeded")
    if message.startswith("the prompt"):
        return ApiError(400, message, param=PROMPT)
    known = {each.name for each in generation_parameters()}
    for word in re.findall(r"[a-z_]+", message):
        if word in known:
            return bad_field(_FIELD_NAMES.get(word, word), message)
    return ApiError(400, message)
