"""Bounds of the objects that templates are given: their JSON finds a member by reading all."""

from __future__ import annotations

from typing import Any

from pagewheel.serve.http.errors import bad_field

# Of the squares of all objects' sizes: one of 2,000 members takes some tens of milliseconds, in
# which no other thread of Python runs.
_MOST_COMPARISONS = 2000**2


def check_objects(**values: Any) -> None:
    """Raises ApiError that names the value whose objects have too many members."""
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
            if comparisons > _MOST_COMPARISONS:
                raise bad_field(
                    name,
                    "has objects of too many members: allowed are 2000 in one, and fewer where "
                    "there are several",
                )
