"""What a request asks of the engine: parameters, bounds, formats. The same for all endpoints.

A parameter that is new in the engine's table is a field of requests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pagewheel
from pagewheel._pagewheel import GenerationParameter, generation_parameters
from pagewheel.context_overflow import ERROR
from pagewheel.errors import PagewheelError
from pagewheel.parameters import apply_parameters
from pagewheel.serve.api.conversation import text_of
from pagewheel.serve.api.response_format import ResponseFormat
from pagewheel.serve.api.service import Context
from pagewheel.serve.api.tools import Tools
from pagewheel.serve.errors import refused
from pagewheel.serve.http.body import Fields, checked
from pagewheel.serve.http.errors import bad_field
from pagewheel.serve.settings import Limits

MAX_TOKENS = 2**31 - 1
_MAX_METADATA = 16
_MAX_METADATA_KEY = 64
_MAX_METADATA_VALUE = 512
# Seconds left of a deadline that has passed: the engine ends the request in its queue.
SHORTEST = 1e-6
# Fields that are parameters under another name.
_OTHER_NAMES = {"stop_strings": ("stop",), "rng_seed": ("seed",)}
# Parameters that endpoints set themselves.
_NOT_FIELDS = (
    *("max_new_tokens", "num_return_sequences", "logprobs", "echo", "timeout"),
    *("skip_special_tokens", "apply_chat_template", "cache_eviction"),
)

_PARAMETERS = tuple(each for each in generation_parameters() if each.name not in _NOT_FIELDS)


@dataclass
class SamplingRequest:
    """`max_tokens` None: until max_length, or a full context."""

    given: dict[str, Any]
    deadline: float  # by time.monotonic()
    max_tokens: int | None = None
    choices: int = 1
    with_log_probs: bool = False
    with_prompt_log_probs: bool = False
    is_ranked: bool = False  # choices are compared, so that log-probabilities are needed
    top_log_probs: int = 0  # likeliest tokens in the place of each
    top_field: str = "top_logprobs"  # of the request
    overflow: str = ERROR  # of the context, by prompt and answer
    response_format: ResponseFormat | None = None
    tools: Tools = field(default_factory=Tools)

    @property
    def max_length(self) -> int | None:
        """Bounds prompt and answer together; only without max_tokens."""
        return self.given.get("max_length")


def read_sampling(context: Context, fields: Fields) -> SamplingRequest:
    """Reads the engine's parameters and the deadline; endpoints read the rest."""
    elapsed = time.monotonic() - context.began
    limits = context.service.settings.limits
    given = take_parameters(fields)
    limit_priority(fields, given, context.key_limits.priority)
    given["cache_salt"] = context.tenant.salt(given.get("cache_salt", ""))
    return SamplingRequest(given, time.monotonic() + take_timeout(fields, limits, elapsed))


def read_hints(fields: Fields) -> dict[str, str | None]:
    """Takes fields that say who asks or what for, and change no answer."""
    names = ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
    found = {name: fields.take(name, str) for name in names}
    take_metadata(fields)
    fields.take_one_of("service_tier", (None, "auto", "default"))
    return found


def take_metadata(fields: Fields) -> dict[str, str]:
    values = fields.take("metadata", dict) or {}
    if len(values) > _MAX_METADATA:
        raise bad_field("metadata", f"has {len(values)} keys; allowed: {_MAX_METADATA}")
    for key, value in values.items():
        if len(key) > _MAX_METADATA_KEY:
            raise bad_field(
                "metadata", f"has a key of {len(key)} characters; allowed: {_MAX_METADATA_KEY}"
            )
        name = f"metadata.{key}"
        if len(checked(name, value, str)) > _MAX_METADATA_VALUE:
            raise bad_field(name, f"has {len(value)} characters; allowed: {_MAX_METADATA_VALUE}")
    return values


def take_parameters(fields: Fields) -> dict[str, Any]:
    """Raises ApiError for values that are not allowed."""
    given: dict[str, Any] = {}
    for parameter in _PARAMETERS:
        for name in (parameter.name, *_OTHER_NAMES.get(parameter.name, ())):
            value = fields.take_any(name)
            if value is None:
                continue
            if name == "temperature" and value == 0 and not isinstance(value, bool):
                given["do_sample"] = False  # OpenAI's way to ask for it
                continue
            if name == "top_p" and value == 0 and not isinstance(value, bool):
                given["do_sample"] = False  # in OpenAI's range: the best token alone
                continue
            if name == "top_k" and value == -1:
                value = 0  # vLLM's way to say: of all
            if parameter.name == "rng_seed":
                value = _seed(fields.name(name), value)
            given[parameter.name] = _checked(parameter, fields.name(name), value)
    if given.get("do_sample") is False:
        given.pop("temperature", None)
    return given


def limit_priority(fields: Fields, given: dict[str, Any], highest: int | None) -> None:
    """A key has its own highest priority; below 0 it is that of requests that ask for none."""
    if highest is None:
        return
    priority = given.setdefault("priority", min(0, highest))
    if priority > highest:
        raise bad_field(
            fields.name("priority"),
            f"is {priority}; this key may set up to {highest}",
            "priority_not_allowed",
        )


def take_timeout(fields: Fields, limits: Limits, elapsed: float) -> float:
    """Gives the seconds that the engine has for the request."""
    name = fields.name("timeout")
    value = fields.take_any("timeout")
    if value is None:
        return max(SHORTEST, limits.request_seconds - elapsed)
    if checked(name, value, float) <= 0:
        raise bad_field(name, f"is {value}; allowed: greater than 0 seconds")
    return max(SHORTEST, min(value, limits.request_seconds) - elapsed)


def take_max_tokens(
    fields: Fields, field: str, low: int = 1, is_required: bool = False
) -> int | None:
    """limited_tokens() says what it may be."""
    count = fields.need(field, int) if is_required else fields.take(field, int)
    if count is not None and not low <= count <= MAX_TOKENS:
        raise bad_field(fields.name(field), f"is {count}; allowed: {low} to {MAX_TOKENS}")
    return count


def limited_tokens(
    name: str, value: int | None, limits: Limits, max_length: int | None = None
) -> int | None:
    """Gives None where max_length or a full context is the bound."""
    if value is None and max_length is not None:
        limited_tokens("max_length", max_length, limits)
        return None
    if value is None:
        return limits.max_tokens or None
    if limits.max_tokens and value > limits.max_tokens:
        raise bad_field(name, f"is {value}; this server allows up to {limits.max_tokens}")
    return value


def make_config(
    base: pagewheel.GenerationConfig, given: dict[str, Any], settings: dict[str, Any]
) -> pagewheel.GenerationConfig:
    """Changes the model's own config."""
    try:
        apply_parameters(base, given)
        base.update_generation_config(
            **{name: value for name, value in settings.items() if value is not None}
        )
    except (ValueError, TypeError) as error:
        raise refused(error) from None
    return base


def split_copies(config: pagewheel.GenerationConfig) -> int:
    """Gives how many requests of the engine `n` greedy answers are; others are one."""
    if config.do_sample or config.is_beam_search():
        return 1
    copies, config.num_return_sequences = config.num_return_sequences, 1
    return copies


def _checked(parameter: GenerationParameter, name: str, value: Any) -> Any:
    if parameter.name == "stop_strings" and isinstance(value, str):
        value = [value]
    if parameter.type.startswith("dict[int") and isinstance(value, dict):
        value = {_token_id(name, key): one for key, one in value.items()}
    if parameter.name == "prediction" and isinstance(value, dict):  # OpenAI's
        if value.keys() != {"type", "content"} or value["type"] != "content":
            raise bad_field(name, 'must be {"type": "content", "content": text or text parts}')
        value = text_of(f"{name}.content", value["content"])
    try:
        parameter.check(value)
    except (ValueError, TypeError) as error:
        code = error.code if isinstance(error, PagewheelError) else None
        raise bad_field(name, str(error), code) from None
    return value


def _seed(name: str, value: Any) -> int:
    """OpenAI's has a sign, the engine's has none."""
    if not -(2**63) <= checked(name, value, int) < 2**64:
        raise bad_field(name, f"is of more than 64 bits; allowed: {-(2**63)} to {2**64 - 1}")
    return int(value) % 2**64


def _token_id(name: str, key: str) -> int:
    if not key.isascii() or not key.isdigit() or len(key) > 18:
        raise bad_field(name, f"keys must be token ids, got {key[:40]!r}")
    return int(key)
