"""What the options of `generate` and `chat` mean."""

from __future__ import annotations

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


def _parse_value(text: str) -> Property:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
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
