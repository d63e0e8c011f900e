"""What the options of `generate` and `chat` mean."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

Property = bool | int | float | str


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens; None keeps what the model's generation config says."""

    max_new_tokens: int
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    rng_seed: int | None = None
    num_beams: int | None = None

    def apply(self, config: Any) -> None:
        """Write into a pagewheel.GenerationConfig. An option of sampling turns sampling on."""
        config.max_new_tokens = self.max_new_tokens
        given = {
            name: value
            for name in ("temperature", "top_k", "top_p", "min_p", "rng_seed")
            if (value := getattr(self, name)) is not None
        }
        for name, value in given.items():
            setattr(config, name, value)
        if self.num_beams is not None:
            config.num_beams = self.num_beams
        if self.do_sample is not None:
            config.do_sample = self.do_sample
        elif given:
            config.do_sample = True
        elif config.num_beams > 1:
            config.do_sample = False


def show_any_path() -> None:
    """Lets a path that is not UTF-8 be printed as the bytes that it is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def prompt_text(prompt: str) -> str:
    """The prompt, or standard input's text for '-'. Raises UnicodeError where it is not UTF-8."""
    if prompt != "-":
        check_text("the prompt", prompt)
        return prompt
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError:
        raise _not_utf8("standard input") from None
    check_text("standard input", text)
    return text


def check_text(what: str, text: str) -> None:
    """Raises UnicodeError for bytes that Python could not read and keeps as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _not_utf8(what) from None


def _not_utf8(what: str) -> UnicodeError:
    return UnicodeError(f"{what} is not UTF-8")


def _parse_value(text: str) -> Property:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise typer.BadParameter(
                f"numbers must fit 64 bits, got {text!r:.40}", param_hint="'--property' / '-p'"
            )
        return value
    return text


def parse_properties(items: Sequence[str]) -> dict[str, Property]:
    """From "KEY=VALUE"; values are true, false, numbers or text. Raises typer.BadParameter."""
    properties = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise typer.BadParameter(
                f"expected KEY=VALUE, got {item!r}", param_hint="'--property' / '-p'"
            )
        properties[key] = _parse_value(value)
    return properties
