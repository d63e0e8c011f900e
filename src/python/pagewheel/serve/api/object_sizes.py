"""What templates are given: how much text it is, bounds of objects, whose JSON finds a member by
reading all, and of integers, of which it has 64 bits."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.http.body import fits_64_bits
from pagewheel.serve.http.errors import bad_field

# Of the squares of all objects' sizes: one of 2,000 members takes some tens of milliseconds, in
# which no other thread of Python runs.
_MOST_COMPARISONS = 2000**2


def check_template_values(**values: Any) -> None:
    """Raises ApiError that names the value with too large an integer or too many members."""
    for name, value in values.items():
        comparisons = 0
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                comparisons += len(one) ** 2
                waiting.extend(one.values())
            elif isinstance(one, (list, tuple)):
                waiting.extend(one)
            elif not fits_64_bits(one):
                raise bad_field(
                    name,
                    f"has the integer {str(one)[:40]}; allowed are those of 64 bits. A larger one "
                    "can be given as a string",
                )
            if comparisons > _MOST_COMPARISONS:
                raise bad_field(
                    name,
                    "has objects of too many members: allowed are 2000 in one, and fewer where "
                    "there are several",
                )


def text_size(*values: Any) -> int:
    """Characters of all texts in the values, about: of numbers, too."""
    size = 0
    waiting: list[Any] = list(values)
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
        elif isinstance(one, int):
            size += 1 + one.bit_length() // 3
        else:
            size += 8
    return size
