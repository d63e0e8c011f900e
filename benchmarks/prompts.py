"""The prompts: token ids of fixed lengths cut out of a real text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics


def real_text(path: Path | None) -> str:
    """The text of `path`; without one, the prose of the Python reference manual.

    The manual comes with every Python, so nothing has to be downloaded. It changes
    between Python versions: compare figures only where the prompts' digest agrees.
    """
    if path is not None:
        return path.read_text(encoding="utf-8")
    prose = " ".join(topics[name] for name in sorted(topics))
    return re.sub(r"\s+", " ", prose)[:200_000]


class PromptSource:
    """Cuts prompts out of one long list of token ids, the same for every peer."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)

    def cut(self, lengths: Sequence[int]) -> list[list[int]]:
        """Consecutive prompts of these lengths (tokens), from the start of the text.

        Raises ValueError if the text is too short.
        """
        if sum(lengths) > len(self._ids):
            raise ValueError(
                f"the prompts need {sum(lengths)} tokens, the text has {len(self._ids)}"
            )
        prompts, begin = [], 0
        for length in lengths:
            prompts.append(self._ids[begin : begin + length])
            begin += length
        return prompts

    def digest(self) -> str:
        """SHA-256 of the ids."""
        text = " ".join(str(token) for token in self._ids)
        return hashlib.sha256(text.encode("ascii")).hexdigest()
