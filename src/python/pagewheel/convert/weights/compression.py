"""How a user wants weights stored. Imports little: it is read before work starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import InvalidArgumentError

FORMATS = ("auto", "f16", "int8", "int4")
GROUP_SIZES = (32, 64, 128)
# Models with more parameters than this are compressed to int8 by "auto", as optimum-intel does.
AUTO_INT8_PARAMETERS = 1_000_000_000


@dataclass(frozen=True)
class Compression:
    """How matrices are stored.

    "auto": as the checkpoint has them, from a billion parameters on int8, and of heads of EAGLE-3
    int8. "f16". "int8": a scale for each row. "int4": a scale for each group of `group_size`
    (where rows are no multiple of it, of the largest smaller one that fits, else int8); embeddings
    and head int8. `symmetric`: no zero points. The router of experts stays as it is.
    """

    weight_format: str = "auto"
    symmetric: bool = False
    group_size: int = 64

    def __post_init__(self) -> None:
        if self.weight_format not in FORMATS:
            raise InvalidArgumentError(
                f"weight_format is {self.weight_format!r}; allowed: {', '.join(FORMATS)}"
            )
        if self.group_size not in GROUP_SIZES:
            sizes = ", ".join(map(str, GROUP_SIZES))
            raise InvalidArgumentError(f"group_size is {self.group_size}; allowed: {sizes}")

    def chosen(self, num_parameters: int, only_drafts: bool = False) -> Compression:
        """With "auto" resolved to "int8" where the model is large, or its tokens are only drafts:
        the time of its weights is what a draft costs, and no answer is less exact.
        """
        is_int8 = only_drafts or num_parameters > AUTO_INT8_PARAMETERS
        if self.weight_format == "auto" and is_int8:
            return replace(self, weight_format="int8")
        return self

    def __str__(self) -> str:
        if self.weight_format in ("auto", "f16"):
            return self.weight_format
        group = f" groups of {self.group_size}" if self.weight_format == "int4" else ""
        return f"{self.weight_format} {'symmetric' if self.symmetric else 'asymmetric'}{group}"
