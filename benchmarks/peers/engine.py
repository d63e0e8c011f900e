"""What the harness asks of an engine. Lives in the worker process, one per process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Generated:
    """Times of one call in seconds since its submission.

    first_token: until the first token of any request existed; last_token: until
    every request had all of its tokens. steps: ends of the steps from the first token
    on; of a single request, when each of its tokens existed. Empty where an engine
    does not say.
    """

    first_token: float
    last_token: float
    steps: list[float] = field(default_factory=list)


def common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all of several prompts begin with, one less than the shortest has at most."""
    if len(prompts) < 2:
        return 0
    most = min(map(len, prompts)) - 1
    columns = zip(*(prompt[:most] for prompt in prompts), strict=True)
    return next((i for i, column in enumerate(columns) if len(set(column)) > 1), most)


class Engine(ABC):
    """An inference engine with one model loaded."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options` come from --set; an engine refuses a key it does not know."""
        self.options = dict(options)

    @staticmethod
    def prepare_cached_load(model: Path, cache: Path) -> Path:
        """Uncounted, between the first load and a cached one.

        Converts into the empty folder `cache` if the first load cached nothing by
        itself. Returns what a user then gives to `load`.
        """
        return model

    @abstractmethod
    def load(self, model: Path, device: str) -> None:
        """Make the engine ready to generate."""

    def weights(self, model: Path) -> Path:
        """The file whose bytes a decode step reads once."""
        return model / "openvino_model.bin" if model.is_dir() else model

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The settings in force, for the record."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""

    @abstractmethod
    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
        """Greedy decoding of all prompts at once, `new_tokens` each, whatever the model says.

        Raises RuntimeError if a request got another number of tokens.
        """
